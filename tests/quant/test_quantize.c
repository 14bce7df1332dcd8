/* test_quantize.c - whole runs on small models: what is written decodes to what the
 * plan says, broken runs go on, transforms leave the function, bad options are told. */
#include "quant/quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "quant/plan.h"
#include "tests/check.h"
#include "tests/quant/ref_run.h"

/* --- what is written --- */

/* OUT's logits are those of the model whose weights were rounded in memory. */
static void check_written(const char *model, Scheme s)
{
    RefRun f;
    Plan   plan;
    char   spec[SCHEME_TEXT];
    float *written, *rounded;
    T_STATUS_OK(ref_run_open(&f, model, s));
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_STATUS_OK(plan_init(&plan, &f.arena, scheme_text(&s, spec)));
    T_STATUS_OK(ref_run_logits(&rounded, &f, f.model, plan_edit, &plan));
    T_STATUS_OK(ref_run_logits(&written, &f, f.out, NULL, NULL));
    /* Products decode to q s - z s: with f32 scales that rounds otherwise than (q - z) s. */
    T_NEAR(ref_run_difference(rounded, written), 0, s.asym ? 4e-6 : 0);
    T_OK(f.r.n_rows == plan.n);
    for (int64_t i = 0; i < f.r.n_rows; i++) {
        const PlanEntry *e = plan_find(&plan, f.r.rows[i].name);
        T_OK(e);
        T_NEAR(f.r.rows[i].weight_error, round_error(&e->error),
               1e-6 * round_error(&e->error));
        T_OK(isnan(f.r.rows[i].output_error));
    }
    T_NEAR(f.r.bits, plan_bits(&plan), 1e-9);
    ref_run_close(&f);
}

TEST(written_weights_are_those_rounded_in_memory)
{
    static const char *const MODELS[] = {"diff_mha", "diff_gqa", "diff_bias_gelu",
                                         "diff_odd_kv", "llama_gqa", "llama_tied_shipped"};
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        check_written(MODELS[i], ref_scheme(4, 0, false, METHOD_RTN));
        check_written(MODELS[i], ref_scheme(6, 0, true, METHOD_RTN));
        check_written(MODELS[i], ref_scheme(8, 0, false, METHOD_RTN));
    }
}

/* --- rules --- */

TEST(rules_give_matrices_schemes_of_their_own)
{
    RefRun           f;
    const SchemeRule rules[] = {{"*self_attn*", ref_scheme(8, 32, false, METHOD_RTN)},
                                {"*.layers.1.*v_proj.weight",
                                 ref_scheme(0, 0, false, METHOD_RTN)}};
    T_STATUS_OK(ref_run_open(&f, "diff_mha", ref_scheme(4, 0, false, METHOD_CLIP)));
    f.o.rules = rules;
    f.o.n_rules = 2;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    for (int64_t i = 0; i < f.r.n_rows; i++) {
        const char *name = f.r.rows[i].name;
        T_TEXT(f.r.rows[i].format, strstr(name, "layers.1.self_attn.v_proj") ? "F32" :
               strstr(name, "self_attn") ? "w8:g32" : "w4:clip");
    }
    T_OK(strstr(f.r.notes, "vLLM"));
    float *logits;
    T_STATUS_OK(ref_run_logits(&logits, &f, f.out, NULL, NULL));
    ref_run_close(&f);
}

/* The head stays floats unless a pattern spells it; a tied one needs a rotation. */
TEST(a_head_is_coded_where_it_is_named)
{
    RefRun     f;
    SchemeRule rule = {"*", ref_scheme(6, 0, false, METHOD_RTN)};
    float     *before, *after;
    T_STATUS_OK(ref_run_open(&f, "diff_mha", ref_scheme(8, 0, false, METHOD_RTN)));
    f.o.rules = &rule;
    f.o.n_rules = 1;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK(!strstr(f.r.rows[f.r.n_rows - 1].name, "lm_head"));
    rule = (SchemeRule){"lm_head*", ref_scheme(8, 0, false, METHOD_GPTQ)};
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_TEXT(f.r.rows[f.r.n_rows - 1].name, "lm_head.weight");
    T_TEXT(f.r.rows[f.r.n_rows - 1].format, "w8:clip");
    T_OK(f.r.rows[f.r.n_rows - 1].weight_error > 1e-4);
    T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
    T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
    T_NEAR(ref_run_difference(before, after), 0, 0.05);
    ref_run_close(&f);

    T_STATUS_OK(ref_run_open(&f, "llama_tied_shipped", ref_scheme(8, 0, false, METHOD_RTN)));
    f.o.rules = &rule;
    f.o.n_rules = 1;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_UNSUPPORTED, "--rotate");
    f.o.rotate = true;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
    T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
    T_NEAR(ref_run_difference(before, after), 0, 0.05);
    ref_run_close(&f);
}

/* --- transforms --- */

/* Weights that stay floats: the function is the same but for rounding. */
static void check_function(const char *model, bool rotate, double smooth)
{
    RefRun f;
    float *before, *after;
    T_STATUS_OK(ref_run_open(&f, model, ref_scheme(0, 0, false, METHOD_RTN)));
    f.o.rotate = rotate;
    f.o.smooth = smooth;
    f.o.seed = 3;
    f.o.text = smooth > 0 ? &f.text : NULL;
    f.o.text_name = "random";
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
    T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
    T_OK(ref_run_difference(before, after) > 0);
    /* Twice what the f32 pass itself is away from the golden logits, generously. */
    T_NEAR(ref_run_difference(before, after), 0, 1e-5);
    ref_run_close(&f);
}

TEST(transforms_leave_the_function)
{
    static const char *const MODELS[] = {"diff_mha", "diff_gqa", "diff_bias_gelu",
                                         "diff_odd_kv", "llama_gqa", "llama_tied_shipped"};
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        check_function(MODELS[i], true, 0);
        check_function(MODELS[i], false, 0.5);
        check_function(MODELS[i], true, 0.5);
    }
}

/* Rows whose errors were measured, squared and summed. */
static double output_error2(const QuantizeResult *r)
{
    double sum = 0;
    for (int64_t i = 0; i < r->n_rows; i++)
        sum += r->rows[i].output_error * r->rows[i].output_error;
    return sum;
}

static double error_of(const char *model, Scheme s, bool awq, bool rotate)
{
    RefRun f;
    float *logits;
    if (ref_run_open(&f, model, s) != OK)
        return NAN;
    f.o.text = &f.text;
    f.o.text_name = "random";
    f.o.awq = awq;
    f.o.rotate = rotate;
    double e = NAN;
    if (quantize_run(&f.r, &f.arena, &f.o) == OK &&
        ref_run_logits(&logits, &f, f.out, NULL, NULL) == OK)
        e = output_error2(&f.r);
    ref_run_close(&f);
    return e;
}

TEST(methods_that_look_at_the_text_lower_the_outputs_error)
{
    static const char *const MODELS[] = {"diff_gqa", "diff_bias_gelu", "llama_tied_shipped"};
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        double rtn = error_of(MODELS[i], ref_scheme(4, 0, false, METHOD_RTN), false, false);
        double awq = error_of(MODELS[i], ref_scheme(4, 0, false, METHOD_RTN), true, false);
        double gptq = error_of(MODELS[i], ref_scheme(4, 0, false, METHOD_GPTQ), false, false);
        double both = error_of(MODELS[i], ref_scheme(4, 0, false, METHOD_GPTQ), true, true);
        T_OK(rtn > 0 && awq < rtn && gptq < 0.8 * rtn && both < rtn);
    }
}

/* --- budgets --- */

TEST(a_budget_picks_widths_by_error)
{
    RefRun f;
    for (int text = 0; text < 2; text++) {
        int64_t of_bits[9] = {0};
        T_STATUS_OK(ref_run_open(&f, "diff_gqa", ref_scheme(4, 0, false, METHOD_CLIP)));
        f.o.target_bits = 7.2;
        f.o.text = text ? &f.text : NULL;
        f.o.text_name = "random";
        T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
        T_OK(f.r.bits <= 7.2 && f.r.bits > 6.4);
        for (int64_t i = 0; i < f.r.n_rows; i++)
            of_bits[f.r.rows[i].format[1] - '0']++;
        T_OK(of_bits[4] + of_bits[6] + of_bits[8] == f.r.n_rows);
        T_OK(of_bits[4] < f.r.n_rows && of_bits[8] < f.r.n_rows);
        ref_run_close(&f);
    }
}

/* A matrix that a rule names keeps the rule's bits, and counts. */
TEST(a_budget_leaves_what_rules_name)
{
    RefRun           f;
    const SchemeRule rule = {"*down_proj*", ref_scheme(8, 0, false, METHOD_RTN)};
    T_STATUS_OK(ref_run_open(&f, "diff_gqa", ref_scheme(4, 0, false, METHOD_RTN)));
    f.o.rules = &rule;
    f.o.n_rules = 1;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    double least = f.r.bits;
    f.o.target_bits = 0.999 * least;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_RANGE, "--target-bits");
    f.o.target_bits = 1.001 * least;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    for (int64_t i = 0; i < f.r.n_rows; i++)
        T_TEXT(f.r.rows[i].format, strstr(f.r.rows[i].name, "down_proj") ? "w8" : "w4");
    ref_run_close(&f);
}

/* target_bytes: the tensors of OUT stay below. */
TEST(a_size_is_kept)
{
    RefRun f;
    T_STATUS_OK(ref_run_open(&f, "diff_gqa", ref_scheme(4, 0, false, METHOD_RTN)));
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    double smallest = (double)f.r.bytes_after;
    f.o.target_bytes = 1.1 * smallest;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK((double)f.r.bytes_after <= 1.1 * smallest);
    T_OK((double)f.r.bytes_after > 1.02 * smallest);
    f.o.target_bytes = 0.5 * smallest;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_RANGE, "lowest widths");
    ref_run_close(&f);
}

/* --- the same bytes --- */

static bool same_file(const char *a, const char *b, const char *name)
{
    char    path[2][1100];
    FileMap map[2] = {{0}};
    snprintf(path[0], sizeof path[0], "%s/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/%s", b, name);
    bool same = filemap_open(&map[0], path[0]) == OK && filemap_open(&map[1], path[1]) == OK &&
                map[0].size == map[1].size && map[0].size > 0 &&
                memcmp(map[0].data, map[1].data, map[0].size) == 0;
    filemap_close(&map[0]);
    filemap_close(&map[1]);
    return same;
}

static Status with_everything(RefRun *f, const char *out)
{
    TRY(ref_run_open(f, "diff_gqa", ref_scheme(4, 0, true, METHOD_GPTQ)));
    snprintf(f->out, sizeof f->out, "%s/%s", check_tmp(), out);
    f->o.text = &f->text;
    f->o.text_name = "random";
    f->o.rotate = f->o.awq = true;
    return OK;
}

TEST(threads_change_no_byte)
{
    RefRun a, b;
    T_STATUS_OK(with_everything(&a, "two"));
    T_STATUS_OK(with_everything(&b, "three"));
    b.be.n_threads = 3;
    T_STATUS_OK(quantize_run(&a.r, &a.arena, &a.o));
    T_STATUS_OK(quantize_run(&b.r, &b.arena, &b.o));
    T_OK(same_file(a.out, b.out, "model.safetensors"));
    ref_run_close(&a);
    ref_run_close(&b);
}

/* Breaks runs off at the k-th allocation. Where that leaves finished layers, goes on. */
TEST(a_broken_run_goes_on_to_the_same_bytes)
{
    RefRun      whole, f;
    struct stat st;
    int         resumed = 0;
    char        partial[600], config[600];
    T_STATUS_OK(with_everything(&whole, "whole"));
    T_STATUS_OK(quantize_run(&whole.r, &whole.arena, &whole.o));
    for (int64_t k = 64; resumed < 2 && k < 1 << 20; k += k / 8) {
        T_STATUS_OK(with_everything(&f, "broken"));
        snprintf(partial, sizeof partial, "%s.partial", f.out);
        snprintf(config, sizeof config, "%s.partial/config.json", f.out);
        arena_fail_at(k);
        Status s = quantize_run(&f.r, &f.arena, &f.o);
        arena_fail_at(0);
        T_OK(s == ERR_MEMORY && stat(f.out, &st) != 0 && stat(config, &st) != 0);
        if (stat(partial, &st) == 0) {
            f.o.resume = true;
            T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
            T_OK(same_file(f.out, whole.out, "model.safetensors"));
            T_OK(same_file(f.out, whole.out, "config.json"));
            for (int64_t i = 0; i < f.r.n_rows; i++)
                T_NEAR(f.r.rows[i].output_error, whole.r.rows[i].output_error, 0);
            char command[700];
            snprintf(command, sizeof command, "rm -r '%s'", f.out);
            T_OK(system(command) == 0);
            resumed++;
        }
        ref_run_close(&f);
    }
    T_OK(resumed == 2);
    ref_run_close(&whole);
}

/* The first allocation of a row of them whose failure leaves finished layers; 0: none. */
static int64_t first_that_leaves_layers(double note_seconds)
{
    for (int64_t k = 64; k < 1 << 20; k += k / 8) {
        RefRun f;
        char   partial[600], command[700];
        if (with_everything(&f, "noted") != OK)
            return 0;
        snprintf(partial, sizeof partial, "%s.partial", f.out);
        snprintf(command, sizeof command, "rm -r '%s'", partial);
        f.o.note_seconds = note_seconds;
        arena_fail_at(k);
        Status s = quantize_run(&f.r, &f.arena, &f.o);
        arena_fail_at(0);
        ref_run_close(&f);
        if (s != ERR_MEMORY)
            return 0;
        if (access(partial, F_OK) == 0)
            return system(command) == 0 ? k : 0;
    }
    return 0;
}

/* A layer that took longer than the seconds between notes is noted, the first as well. */
TEST(seconds_between_notes_count_from_the_first_layer)
{
    int64_t each = first_that_leaves_layers(0);
    T_OK(each > 0 && first_that_leaves_layers(1e-9) == each);
}

TEST(other_settings_are_not_resumed)
{
    RefRun f;
    char   partial[600];
    T_STATUS_OK(with_everything(&f, "other"));
    snprintf(partial, sizeof partial, "%s.partial", f.out);
    for (int64_t k = 64; access(partial, F_OK) != 0; k += k / 8) {
        arena_fail_at(k);
        Status s = quantize_run(&f.r, &f.arena, &f.o);
        arena_fail_at(0);
        T_OK(s == ERR_MEMORY);
    }
    f.o.resume = true;
    f.o.seed = 99;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "partial");
    f.o.seed = 0;
    /* another text of the same name and length */
    int32_t *ids = (int32_t *)(uintptr_t)f.text.ids;
    ids[7] ^= 1;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "the same settings");
    ids[7] ^= 1;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    ref_run_close(&f);
}

/* --- what is refused --- */

/* All that needs no work is told before any: quantize_check says it too. */
static void refused(RefRun *f, Status kind, const char *word)
{
    T_FAILS(quantize_check(&f->o, true), kind, word);
    T_FAILS(quantize_run(&f->r, &f->arena, &f->o), kind, word);
}

TEST(what_can_be_known_is_told_first)
{
    RefRun f;
    T_STATUS_OK(ref_run_open(&f, "diff_mha", ref_scheme(4, 0, false, METHOD_RTN)));
    snprintf(f.out, sizeof f.out, "%s/first", check_tmp());
    f.o.overwrite = false;
    T_STATUS_OK(quantize_check(&f.o, false));
    T_OK(access(f.out, F_OK) != 0);
    f.o.format = "gguf";
    refused(&f, ERR_UNSUPPORTED, "--format compressed-tensors");
    f.o.format = "gptq";
    refused(&f, ERR_UNSUPPORTED, "--floats f16");
    f.o.target_bits = 5;
    refused(&f, ERR_USAGE, "one width for all");
    f.o.format = "compressed-tensors";
    f.o.target_bits = 0;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    refused(&f, ERR_USAGE, "--force");
    ref_run_close(&f);
}

TEST(wrong_options)
{
    RefRun f;
    T_STATUS_OK(ref_run_open(&f, "diff_mha", ref_scheme(4, 0, false, METHOD_GPTQ)));
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "--text");
    f.o.scheme = ref_scheme(4, 64, false, METHOD_RTN);
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_SHAPE, "groups of 64");
    f.o.scheme = ref_scheme(4, 0, false, METHOD_RTN);
    f.o.awq = true;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "--awq");
    f.o.awq = false;
    const SchemeRule rule = {"*nothing*", f.o.scheme};
    f.o.rules = &rule;
    f.o.n_rules = 1;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "*nothing*");
    f.o.n_rules = 0;
    f.o.format = "gguf";
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_UNSUPPORTED, "compressed-tensors");
    f.o.format = "tar";
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "\"tar\"");
    f.o.format = "compressed-tensors";
    f.o.out = f.model;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, f.model);
    ref_run_close(&f);
}

TEST(what_is_quantized_already)
{
    RefRun f;
    char   again[512];
    T_STATUS_OK(ref_run_open(&f, "diff_mha", ref_scheme(8, 0, false, METHOD_RTN)));
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    snprintf(again, sizeof again, "%s/again", check_tmp());
    f.o.model = f.out;
    f.o.out = again;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "--requantize");
    f.o.requantize = true;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    float *once, *twice;
    T_STATUS_OK(ref_run_logits(&once, &f, f.out, NULL, NULL));
    T_STATUS_OK(ref_run_logits(&twice, &f, again, NULL, NULL));
    /* the same codes but for the scale's last bit */
    T_NEAR(ref_run_difference(once, twice), 0, 1e-5);
    ref_run_close(&f);
}

TEST(a_short_text_is_told)
{
    RefRun f;
    T_STATUS_OK(ref_run_open(&f, "diff_mha", ref_scheme(4, 0, false, METHOD_GPTQ)));
    ref_run_text(&f, 1, 20);
    f.o.text = &f.text;
    f.o.text_name = "short";
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK(strstr(f.r.notes, "20 tokens"));
    float *logits;
    T_STATUS_OK(ref_run_logits(&logits, &f, f.out, NULL, NULL));
    ref_run_close(&f);
}
