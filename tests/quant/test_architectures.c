/* test_architectures.c - quantize on every architecture: what is written is read again and
 * is what was coded, methods lose about what rounding loses, transforms leave the function,
 * and what an architecture does not allow is refused by name. Names in files, heads, Mamba:
 * test_architecture_names.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

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
        T_OK(ref_run_loss(plain, rounded[1]) > 0 && ref_run_loss(plain, rounded[1]) < 0.05);
        T_OK(ref_run_loss(plain, rounded[0]) > 4 * ref_run_loss(plain, rounded[1]));
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
    ref_run_calibrate(&f);
    f.o.awq = awq;
    if (quantize_run(&f.r, &f.arena, &f.o) == OK &&
        ref_run_logits(&logits, &f, f.out, NULL, NULL) == OK)
        e = ref_run_loss(plain, logits);
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
    /* Over all of them 0.76 and 0.97 were measured; the rest is for other draws. */
    T_OK(n > 0 && exp((sums[1] - sums[0]) / n) < 0.85 && exp((sums[2] - sums[0]) / n) < 1.03);
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
        ref_run_calibrate(&f);
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
        double off = ref_run_loss(before, after);
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
