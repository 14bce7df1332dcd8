/* test_architectures.c - quantize on every architecture: what is written is read again and
 * is what was coded, methods lose about what rounding loses, transforms leave the function,
 * and what an architecture does not allow is refused by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "tests/check.h"
#include "tests/quant/ref_run.h"

/* Words of refusals; NULL: allowed. */
#define MEAN "subtract the mean"
#define CONV "Conv1D"
#define UNROUNDED "int8 rounds the inputs"
#define NO_LLAMA "is not the llama graph"

static const struct {
    const char *path;
    const char *coded, *int8, *rotate, *smooth, *awq, *gguf;
} MODELS[] = {
    {"baselines/mistral_full", NULL, NULL, NULL, NULL, NULL, NULL},
    {"baselines/mistral_window", NULL, NULL, NULL, NULL, NULL, "no such windows"},
    {"baselines/qwen2_tied", NULL, NULL, NULL, NULL, NULL, NO_LLAMA},
    {"baselines/qwen3_bias_window", NULL, NULL, NULL, NULL, NULL, NO_LLAMA},
    {"baselines/qwen3_tied", NULL, NULL, NULL, NULL, NULL, NO_LLAMA},
    {"baselines/stablelm_epoch", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/stablelm_alpha", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/stablelm_parallel", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/stablelm_qk_norm", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/neox_parallel", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/neox_serial", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/neox_tied", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/gpt2_plain", CONV, CONV, MEAN, NULL, CONV, NO_LLAMA},
    {"baselines/gpt2_inner_untied", CONV, CONV, MEAN, NULL, CONV, NO_LLAMA},
    {"baselines/opt_pre_norm", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"baselines/opt_bare", NULL, NULL, MEAN, "have no weights", NULL, NO_LLAMA},
    {"baselines/opt_post_norm", NULL, NULL, MEAN, "come after", NULL, NO_LLAMA},
    {"baselines/opt_no_final_norm", NULL, NULL, MEAN, NULL, NULL, NO_LLAMA},
    {"variants/motif_mha", NULL, NULL, NULL, NULL, NULL, "differential model"},
    {"variants/motif_gqa", NULL, NULL, NULL, NULL, NULL, "differential model"},
    {"variants/unilm_v1_gqa", NULL, NULL, NULL, NULL, NULL, "config.json"},
    {"variants/phi4flash", NULL, UNROUNDED, MEAN, NULL, NULL, "differential model"},
    {"variants/phi4flash_list", NULL, UNROUNDED, MEAN, NULL, NULL, "differential model"},
    {"variants/motif_gda", NULL, NULL, NULL, NULL, NULL, "differential model"},
    {"variants/unilm_v2_gqa", NULL, UNROUNDED, NULL, NULL, NULL, "config.json"},
    {"variants/unilm_v2_mha", NULL, UNROUNDED, NULL, NULL, NULL, "config.json"},
};
enum { N_MODELS = sizeof MODELS / sizeof *MODELS };

static void with_text(RefRun *f)
{
    f->o.text = &f->text;
    f->o.text_name = "random";
}

/* Root of the mean square of a - b, over that of a; not finite: infinite. */
static double loss(const float *a, const float *b)
{
    double error = 0, sum = 0;
    for (int i = 0; i < REF_RUN_TOKENS * REF_RUN_VOCAB; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        sum += (double)a[i] * (double)a[i];
    }
    return isfinite(error) && sum > 0 ? sqrt(error / sum) : INFINITY;
}

/* --- what is written is what was coded --- */

static void check_written(const char *path, Scheme s)
{
    RefRun f;
    Plan   plan;
    char   spec[SCHEME_TEXT];
    float *written, *rounded;
    T_STATUS_OK(ref_run_open(&f, path, s));
    T_STATUS_OK(quantize_check(&f.o, false));
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_STATUS_OK(plan_init(&plan, &f.arena, scheme_text(&s, spec)));
    T_STATUS_OK(ref_run_logits(&rounded, &f, f.model, plan_edit, &plan));
    T_STATUS_OK(ref_run_logits(&written, &f, f.out, NULL, NULL));
    T_NEAR(ref_run_difference(rounded, written), 0, 0);
    T_OK(f.r.n_rows == plan.n);   // each of the matrices, and nothing else
    T_NEAR(f.r.bits, plan_bits(&plan), 1e-9);
    ref_run_close(&f);
}

TEST(written_weights_are_those_rounded_in_memory)
{
    for (int i = 0; i < N_MODELS; i++)
        if (!MODELS[i].coded)
            check_written(MODELS[i].path, ref_scheme(i % 2 ? 8 : 4, 0, false, METHOD_RTN));
}

/* GPT-2's matrices are turned while they load: what eval does works, files are refused. */
TEST(transposed_matrices_are_quantized_in_memory_alone)
{
    for (int i = 0; i < N_MODELS; i++) {
        RefRun f;
        Plan   plan;
        float *plain, *rounded[2];
        if (!MODELS[i].coded)
            continue;
        T_STATUS_OK(ref_run_open(&f, MODELS[i].path, ref_scheme(8, 0, false, METHOD_RTN)));
        T_FAILS(quantize_check(&f.o, false), ERR_UNSUPPORTED, MODELS[i].coded);
        T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_UNSUPPORTED, MODELS[i].coded);
        T_STATUS_OK(ref_run_logits(&plain, &f, f.model, NULL, NULL));
        for (int j = 0; j < 2; j++) {
            T_STATUS_OK(plan_init(&plan, &f.arena, j ? "w8" : "w4"));
            T_STATUS_OK(ref_run_logits(&rounded[j], &f, f.model, plan_edit, &plan));
            T_OK(plan.n % 4 == 0 && plan.n > 0);
        }
        T_OK(loss(plain, rounded[1]) > 0 && loss(plain, rounded[1]) < 0.05);
        T_OK(loss(plain, rounded[0]) > 4 * loss(plain, rounded[1]));
        ref_run_close(&f);
    }
}

/* --- methods --- */

static double loss_of(const char *path, Scheme s, bool awq, float *const plain)
{
    RefRun f;
    float *logits;
    double e = INFINITY;
    if (ref_run_open(&f, path, s) != OK)
        return e;
    with_text(&f);
    f.o.awq = awq;
    if (quantize_run(&f.r, &f.arena, &f.o) == OK &&
        ref_run_logits(&logits, &f, f.out, NULL, NULL) == OK)
        e = loss(plain, logits);
    else
        check_fail(__FILE__, __LINE__, "%s: %s", path, status_text());
    ref_run_close(&f);
    return e;
}

TEST(methods_lose_no_more_than_rounding)
{
    double sums[3] = {0};
    int    n = 0;
    for (int i = 0; i < N_MODELS; i++) {
        RefRun f;
        float *plain;
        if (MODELS[i].coded)
            continue;
        T_STATUS_OK(ref_run_open(&f, MODELS[i].path, ref_scheme(4, 0, false, METHOD_RTN)));
        T_STATUS_OK(ref_run_logits(&plain, &f, f.model, NULL, NULL));
        double rtn = loss_of(MODELS[i].path, f.o.scheme, false, plain);
        double gptq = loss_of(MODELS[i].path, ref_scheme(4, 0, false, METHOD_GPTQ), false,
                              plain);
        double awq = loss_of(MODELS[i].path, f.o.scheme, true, plain);
        double fine = loss_of(MODELS[i].path, ref_scheme(8, 0, false, METHOD_RTN), true, plain);
        /* One draw of roundings each; a wrong scale or column costs many times that. */
        if (!(gptq < 1.3 * rtn) || !(awq < 1.5 * rtn) || !(fine < rtn / 6))
            check_fail(__FILE__, __LINE__, "%s: rtn %g, gptq %g, awq %g, awq w8 %g",
                       MODELS[i].path, rtn, gptq, awq, fine);
        sums[0] += log(rtn);
        sums[1] += log(gptq);
        sums[2] += log(awq);
        n++;
        ref_run_close(&f);
    }
    T_OK(n > 0 && exp((sums[1] - sums[0]) / n) < 0.8 && exp((sums[2] - sums[0]) / n) < 1);
}

/* --- transforms --- */

/* Weights that stay floats: the function is the same but for rounding. word: the refusal. */
static void check_function(const char *path, bool rotate, double smooth, const char *word)
{
    RefRun f;
    float *before, *after;
    T_STATUS_OK(ref_run_open(&f, path, ref_scheme(0, 0, false, METHOD_RTN)));
    f.o.rotate = rotate;
    f.o.smooth = smooth;
    f.o.seed = 3;
    if (smooth > 0)
        with_text(&f);
    if (word) {
        T_FAILS(quantize_check(&f.o, true), ERR_UNSUPPORTED, word);
        T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_UNSUPPORTED, word);
    } else {
        T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
        T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
        T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
        double off = ref_run_difference(before, after);
        if (!(off > 0) || !(off <= 1e-5))
            check_fail(__FILE__, __LINE__, "%s: rotate %d, smooth %g: off by %g", path, rotate,
                       smooth, off);
    }
    ref_run_close(&f);
}

TEST(transforms_leave_the_function)
{
    for (int i = 0; i < N_MODELS; i++) {
        check_function(MODELS[i].path, true, 0, MODELS[i].rotate);
        check_function(MODELS[i].path, false, 0.5, MODELS[i].smooth);
        if (!MODELS[i].rotate)
            check_function(MODELS[i].path, true, 0.5, NULL);
    }
}

/* --- formats --- */

/* Logits of what GGUF and int8 hold, or the refusal. */
static void check_format(const char *path, const char *format, const char *word, double most)
{
    RefRun f;
    float *before, *after;
    T_STATUS_OK(ref_run_open(&f, path, ref_scheme(8, 0, false, METHOD_RTN)));
    f.o.format = format;
    f.o.gguf_type = "F32";
    if (strcmp(format, "gguf") == 0)
        snprintf(f.out, sizeof f.out, "%s/out.gguf", check_tmp());
    if (word) {
        T_FAILS(quantize_check(&f.o, false), ERR_UNSUPPORTED, word);
        T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_UNSUPPORTED, word);
    } else {
        T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
        T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
        T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
        double off = loss(before, after);
        if (!(off <= most))
            check_fail(__FILE__, __LINE__, "%s as %s: off by %g", path, format, off);
    }
    ref_run_close(&f);
}

TEST(int8_and_gguf_where_they_hold_the_model)
{
    for (int i = 0; i < N_MODELS; i++) {
        check_format(MODELS[i].path, "int8", MODELS[i].int8, 0.05);
        check_format(MODELS[i].path, "gguf", MODELS[i].gguf, 1e-6);
    }
}

/* Layers are counted whatever comes before their number. Of Phi's, no two are alike. */
TEST(gptq_files_of_other_names)
{
    static const struct {
        const char *path, *rule, *word;
    } CASES[] = {{"baselines/opt_pre_norm", "*fc?.weight", NULL},
                 {"baselines/neox_serial", "*mlp*", NULL},
                 {"variants/phi4flash", "*mlp*", "GPTQ holds the same matrices"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        RefRun     f;
        float     *before, *after;
        SchemeRule rule = {CASES[i].rule, ref_scheme(0, 0, false, METHOD_RTN)};
        T_STATUS_OK(ref_run_open(&f, CASES[i].path, ref_scheme(8, 0, false, METHOD_RTN)));
        f.o.format = "gptq";
        f.o.dtype = DTYPE_F16;
        SchemeRule rules[3] = {rule, {"*dt_proj*", rule.scheme}, {"*x_proj*", rule.scheme}};
        f.o.rules = rules;
        f.o.n_rules = CASES[i].word ? 3 : 1;
        if (CASES[i].word) {
            T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_UNSUPPORTED, CASES[i].word);
        } else {
            T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
            T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
            T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
            T_OK(loss(before, after) > 0 && loss(before, after) < 0.05);
        }
        ref_run_close(&f);
    }
}

/* The file of OUT, ended by 0. */
static const char *text_of(RefRun *f, const char *name)
{
    char    path[600];
    FileMap map;
    snprintf(path, sizeof path, "%s/%s", f->out, name);
    if (filemap_open(&map, path) != OK)
        return "";
    const char *text = arena_text(&f->arena, (const char *)map.data, map.size);
    filemap_close(&map);
    return text;
}

/* Linear layers that stay floats are named, and nothing else is. */
TEST(what_is_ignored_is_linear)
{
    static const struct {
        const char *path, *named[3], *not_named[3];
    } CASES[] = {
        {"variants/unilm_v2_gqa", {"layers.1.self_attn.lambda_proj\"", "\"lm_head\""},
         {"embed_tokens", "norm"}},
        {"variants/phi4flash", {"\"lm_head\""}, {"conv1d", "A_log", "x_proj"}},
        /* as the file has it, and as transformers 5 */
        {"baselines/neox_parallel", {"\"embed_out\"", "\"lm_head\""}, {"embed_in"}},
        {"baselines/neox_tied", {"\"embed_out\"", "\"lm_head\""}, {"embed_in"}},
        {"baselines/opt_post_norm", {"\"decoder.project_in\"", "\"model.decoder.project_out\"",
                                     "\"lm_head\""},
         {"embed_positions", "embed_tokens"}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        RefRun f;
        T_STATUS_OK(ref_run_open(&f, CASES[i].path, ref_scheme(4, 0, false, METHOD_RTN)));
        T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
        const char *list = strstr(text_of(&f, "config.json"), "\"ignore\"");
        T_OK(list);
        for (int j = 0; j < 3 && CASES[i].named[j]; j++)
            if (!strstr(list, CASES[i].named[j]))
                check_fail(__FILE__, __LINE__, "%s: not ignored: %s", CASES[i].path,
                           CASES[i].named[j]);
        for (int j = 0; j < 3 && CASES[i].not_named[j]; j++)
            if (strstr(list, CASES[i].not_named[j]))
                check_fail(__FILE__, __LINE__, "%s: ignored: %s", CASES[i].path,
                           CASES[i].not_named[j]);
        ref_run_close(&f);
    }
}

TEST(a_head_is_coded_by_its_own_name)
{
    RefRun     f;
    SchemeRule rule = {"embed_out*", ref_scheme(8, 0, false, METHOD_RTN)};
    float     *before, *after;
    T_STATUS_OK(ref_run_open(&f, "baselines/neox_serial", rule.scheme));
    f.o.rules = &rule;
    f.o.n_rules = 1;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_TEXT(f.r.rows[f.r.n_rows - 1].name, "embed_out.weight");
    T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
    T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
    T_OK(loss(before, after) > 0 && loss(before, after) < 0.05);
    rule.pattern = "lm_head*";
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_USAGE, "lm_head*");
    ref_run_close(&f);
    /* A tied one is no matrix of its own, and no rotation could give it one. */
    T_STATUS_OK(ref_run_open(&f, "baselines/neox_tied", rule.scheme));
    rule.pattern = "embed_out*";
    f.o.rules = &rule;
    f.o.n_rules = 1;
    T_FAILS(quantize_run(&f.r, &f.arena, &f.o), ERR_UNSUPPORTED, "is its embedding");
    T_OK(!strstr(status_text(), "--rotate"));
    ref_run_close(&f);
}

/* --- Mamba, and what later layers read --- */

TEST(inner_matrices_of_mamba_are_fitted_to_their_own_numbers)
{
    RefRun f;
    int    inner = 0;
    T_STATUS_OK(ref_run_open(&f, "variants/phi4flash", ref_scheme(4, 0, false, METHOD_GPTQ)));
    with_text(&f);
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK(strstr(f.r.notes, "x_proj"));
    for (int64_t i = 0; i < f.r.n_rows; i++) {
        const QuantizeRow *row = &f.r.rows[i];
        bool               is_inner = strstr(row->name, ".x_proj") || strstr(row->name, ".dt_proj");
        T_TEXT(row->format, is_inner ? "w4:clip" : "w4:gptq");
        T_OK(isnan(row->output_error) == is_inner && row->weight_error > 0);
        inner += is_inner;
    }
    T_OK(inner == 6);
    ref_run_close(&f);
}

TEST(a_budget_of_layers_that_differ)
{
    RefRun f;
    float *before, *after;
    T_STATUS_OK(ref_run_open(&f, "variants/phi4flash", ref_scheme(4, 0, false, METHOD_RTN)));
    with_text(&f);
    f.o.target_bits = 7;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK(f.r.bits <= 7 && f.r.bits > 6.3);
    T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
    T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
    T_OK(loss(before, after) < 0.2);
    ref_run_close(&f);
}

static bool same_weights(const char *a, const char *b)
{
    char    path[700];
    FileMap map[2] = {{0}};
    snprintf(path, sizeof path, "%s/model.safetensors", a);
    bool same = filemap_open(&map[0], path) == OK;
    snprintf(path, sizeof path, "%s/model.safetensors", b);
    same = same && filemap_open(&map[1], path) == OK && map[0].size == map[1].size &&
           memcmp(map[0].data, map[1].data, map[0].size) == 0;
    filemap_close(&map[0]);
    filemap_close(&map[1]);
    return same;
}

/* A run that is broken off where later layers need keys and memory of earlier ones. */
TEST(a_broken_run_goes_on_to_the_same_bytes)
{
    RefRun f;
    char   partial[600];
    int    resumed = 0;
    T_STATUS_OK(ref_run_open(&f, "variants/phi4flash", ref_scheme(4, 0, false, METHOD_GPTQ)));
    with_text(&f);
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    const char *whole = arena_text(&f.arena, f.out, strlen(f.out));
    snprintf(f.out, sizeof f.out, "%s/again", check_tmp());
    snprintf(partial, sizeof partial, "%s.partial", f.out);
    Status s = ERR_MEMORY;
    for (int64_t k = 512; s != OK; k += k / 2) {
        arena_fail_at(k);
        s = quantize_run(&f.r, &f.arena, &f.o);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        resumed += access(partial, F_OK) == 0;
        f.o.resume = s != OK;
        T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
        f.o.resume = false;
        T_OK(same_weights(whole, f.out));
    }
    T_OK(resumed >= 3);
    ref_run_close(&f);
}

/* --- floats --- */

/* Matrices of BF16 beside lambdas and A_log of F32: asked for nothing, each stays so. */
TEST(vectors_keep_their_own_dtype)
{
    RefRun      f;
    const char *file;
    T_STATUS_OK(ref_run_open(&f, "variants/phi4flash", ref_scheme(8, 0, false, METHOD_RTN)));
    f.o.dtype = N_DTYPES;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    file = strstr(text_of(&f, "model.safetensors") + 8, "layers.0.attn.A_log");
    T_OK(file && strstr(file, "F32") - file < 40);
    file = strstr(text_of(&f, "model.safetensors") + 8, "layers.0.input_layernorm.weight");
    T_OK(file && strstr(file, "BF16") - file < 60);
    ref_run_close(&f);
}
