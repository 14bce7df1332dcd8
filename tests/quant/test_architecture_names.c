/* test_architecture_names.c - quantize where architectures call things otherwise: layers and
 * heads of other names, linear layers that stay floats; and where layers differ: Mamba, keys
 * and memory that later layers read. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "tests/check.h"
#include "tests/quant/ref_run.h"

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
            T_OK(ref_run_loss(before, after) > 0 && ref_run_loss(before, after) < 0.05);
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
    T_OK(ref_run_loss(before, after) > 0 && ref_run_loss(before, after) < 0.05);
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
    ref_run_calibrate(&f);
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK(strstr(f.r.notes, "x_proj"));
    for (int64_t i = 0; i < f.r.n_rows; i++) {
        const QuantizeRow *row = &f.r.rows[i];
        bool is_inner = strstr(row->name, ".x_proj") || strstr(row->name, ".dt_proj");
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
    ref_run_calibrate(&f);
    f.o.target_bits = 7;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK(f.r.bits <= 7 && f.r.bits > 6.3);
    T_STATUS_OK(ref_run_logits(&before, &f, f.model, NULL, NULL));
    T_STATUS_OK(ref_run_logits(&after, &f, f.out, NULL, NULL));
    T_OK(ref_run_loss(before, after) < 0.2);
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
    ref_run_calibrate(&f);
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

/* Does the header of the safetensors file say that of a tensor? */
static bool says(const char *file, const char *entry)
{
    return strstr(file + 8, entry) != NULL;   // after the header's size
}

/* Matrices of BF16 beside lambdas and A_log of F32: asked for nothing, each stays so. */
TEST(vectors_keep_their_own_dtype)
{
    RefRun f;
    T_STATUS_OK(ref_run_open(&f, "variants/phi4flash", ref_scheme(8, 0, false, METHOD_RTN)));
    f.o.dtype = N_DTYPES;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    const char *file = text_of(&f, "model.safetensors");
    T_OK(strlen(file + 8) > 0);
    T_OK(says(file, "layers.0.attn.A_log\":{\"dtype\":\"F32\""));
    T_OK(says(file, "layers.1.attn.inner_cross_attn.lambda_q1\":{\"dtype\":\"F32\""));
    T_OK(says(file, "layers.0.input_layernorm.weight\":{\"dtype\":\"BF16\""));
    T_OK(says(file, "model.embed_tokens.weight\":{\"dtype\":\"BF16\""));
    f.o.dtype = DTYPE_F16;
    T_STATUS_OK(quantize_run(&f.r, &f.arena, &f.o));
    T_OK(says(text_of(&f, "model.safetensors"), "layers.0.attn.A_log\":{\"dtype\":\"F16\""));
    ref_run_close(&f);
}
