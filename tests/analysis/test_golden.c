/* test_golden.c - our forward pass against transformers, model by model.
 * f32: the project's own bound, 2e-5 of the largest value; a plain float loop is
 * off by 1e-6 or so here, and the weakest tensor of any model moves the logits by
 * 1e-3 (make_golden.py refuses weaker ones). */
#include "tests/check.h"

#include <math.h>
#include <stdio.h>

#include "kernels/cpufeat.h"
#include "tests/analysis/ref_golden.h"

static void compare_all(Dtype dtype, bool loud)
{
    Arena        a = {0};
    const char **names;
    int64_t      n;
    T_STATUS_OK(golden_names(&names, &n, &a));
    for (int64_t i = 0; i < n; i++)
        golden_compare(names[i], golden_folder(names[i]), golden_file(names[i]), dtype, loud);
    arena_close(&a);
}

TEST(models_in_f32)
{
    compare_all(DTYPE_F32, true);
}

TEST(models_in_bf16)
{
    compare_all(DTYPE_BF16, true);
}

/* The two tests above took the best there is; here are the lesser ones. */
TEST(models_on_each_instruction_set)
{
    for (int isa = 0; isa < N_CPU_ISAS; isa++)
        if (cpu_isa_force((CpuIsa)isa)) {
            compare_all(DTYPE_F32, false);
            compare_all(DTYPE_BF16, false);
        }
    cpu_isa_force(N_CPU_ISAS);
}

/* Lambda of each layer; the checkpoints hold one above 1 and one below 0. */
TEST(lambdas)
{
    Arena        a = {0};
    const char **names;
    int64_t      n, n_above = 0, n_below = 0;
    T_STATUS_OK(golden_names(&names, &n, &a));
    for (int64_t i = 0; i < n; i++) {
        Trial t = {0};
        if (trial_run(&t, golden_folder(names[i]), golden_file(names[i]), DTYPE_F32, NULL) != OK)
            check_fail(__FILE__, __LINE__, "%s: %s", names[i], status_text());
        for (int64_t l = 0; t.golden.lambda && l < t.golden.L; l++) {
            if (!model_attends(&t.subject.m.config, l))
                continue;
            double want = (double)t.golden.lambda[l];
            double got = (double)t.subject.m.layers[l].lambda;
            /* One rounding to f32 of a value computed in double on both sides. */
            if (!(fabs(got - want) <= 1.2e-7 * fabs(want)))
                check_fail(__FILE__, __LINE__, "%s, layer %lld: lambda %.9g, not %.9g",
                           names[i], (long long)l, got, want);
            n_above += want > 1.0;
            n_below += want < 0.0;
        }
        subject_close(&t.subject);
    }
    arena_close(&a);
    T_OK(n_above > 5 && n_below > 5);
}

static Status check_maps(const char *name, int64_t layer, int64_t *n_maps_seen)
{
    Trial       t = {0};
    Status      s = OK;
    ModelConfig c;
    Golden     *g = &t.golden;
    MapWindow   w = {.sequence = 0};
    Probe       probe = {.window = &w, .window_layer = layer};
    ModelOptions options = {.dtype = DTYPE_F32};
    GUARD(subject_open(&t.subject, golden_folder(name), &options, 0));
    GUARD(golden_read(g, &t.subject.arena, golden_file(name)));
    c = t.subject.m.config;
    w.n_positions = g->S;
    w.maps = arena_alloc(&t.subject.arena, g->N * g->S * g->S, sizeof(float));
    CHECK(w.maps != NULL);
    GUARD(subject_run(&t.run, &t.subject, g->ids, &g->batch, &probe, NULL));
    for (int64_t h = 0; h < c.n_heads; h++)
        for (int64_t m = 0; m < c.n_maps; m++) {
            int64_t size = g->S * g->S;
            int64_t from = layer * g->N + golden_query_head(&t.subject.m, h, m);
            double  e = ref_worst_gap(w.maps + (h * c.n_maps + m) * size, g->maps + from * size,
                                  size);
            ++*n_maps_seen;
            if (!(e <= GOLDEN_F32))
                check_fail(__FILE__, __LINE__, "%s, layer %lld, head %lld, map %lld: off "
                           "by %.1e", name, (long long)layer, (long long)h, (long long)m, e);
        }
out:
    subject_close(&t.subject);
    return s;
}

TEST(raw_maps_are_paired_as_in_the_checkpoint)
{
    int64_t seen = 0;
    T_STATUS_OK(check_maps("models/diff_mha", 0, &seen));
    T_STATUS_OK(check_maps("models/diff_mha", 1, &seen));
    T_STATUS_OK(check_maps("models/diff_gqa", 2, &seen));
    T_STATUS_OK(check_maps("models/diff_mqa", 1, &seen));
    T_STATUS_OK(check_maps("models/llama_gqa", 1, &seen));
    T_OK(seen == 4 + 4 + 8 + 4 + 4);
}

static void check_absmax(const char *name)
{
    Trial        t = {0};
    Golden      *g = &t.golden;
    ModelOptions options = {.dtype = DTYPE_F32};
    Probe        probe = {0};
    Status       s = OK;
    ModelConfig  c;
    GUARD(subject_open(&t.subject, golden_folder(name), &options, 0));
    GUARD(golden_read(g, &t.subject.arena, golden_file(name)));
    GUARD(probe_init(&probe, &t.subject.arena, &t.subject.m, g->T));
    GUARD(subject_run(&t.run, &t.subject, g->ids, &g->batch, &probe, NULL));
    c = t.subject.m.config;
    for (int64_t l = 0; l < g->L; l++)
        for (int64_t h = 0; h < c.n_heads; h++)
            for (int64_t m = 0; m < c.n_maps; m++) {
                int64_t at = l * g->N + golden_query_head(&t.subject.m, h, m);
                double  want = (double)g->logit_absmax[at];
                if (m == 1 && h % c.n_signals)
                    continue;   // counted with the first that shares it
                double got = moments_absmax(&probe.logits[l].moments[h * c.n_maps + m]);
                if (!(fabs(got - want) <= GOLDEN_F32 * want))
                    check_fail(__FILE__, __LINE__, "%s, layer %lld, head %lld, map %lld: "
                               "largest logit %.9g, not %.9g", name, (long long)l,
                               (long long)h, (long long)m, got, want);
            }
out:
    if (s != OK)
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    subject_close(&t.subject);
}

/* What is recorded is what the model computes: allowed entries, each map its own. */
TEST(recorded_logits_have_the_right_peaks)
{
    Arena        a = {0};
    const char **names;
    int64_t      n;
    T_STATUS_OK(golden_names(&names, &n, &a));
    for (int64_t i = 0; i < n; i++)
        check_absmax(names[i]);
    arena_close(&a);
}
