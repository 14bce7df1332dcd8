/* test_calibrate_mixed.c - calibration of layers that read what others left (Mamba's memory,
 * another layer's keys and values), of parallel halves and of norms after them: layer after
 * layer is the model, and each input is what the whole pass meets there. */
#include "analysis/calibrate.h"

#include <math.h>
#include <string.h>

#include "tests/analysis/ref_golden.h"
#include "tests/check.h"

/* No batch holds all of them, and none a single row. */
static const int64_t START[] = {0, 5, 30, 33, 52, 70, 88};
enum { N_WINDOWS = 6, N_ROWS = 88, BATCH_ROWS = 40 };

static const char *const NAMES[] = {
    "variants/phi4flash",       "variants/phi4flash_list", "variants/phi4flash_types",
    "variants/phi4flash_four",  "variants/motif_gda",      "variants/unilm_v2_gqa",
    "baselines/neox_parallel",  "baselines/neox_serial",   "baselines/stablelm_parallel",
    "baselines/opt_post_norm",  "baselines/opt_pre_norm",  "baselines/gpt2_plain",
    "baselines/mistral_window", "baselines/qwen3_bias_window"};
enum { N_NAMES = sizeof NAMES / sizeof *NAMES };

typedef struct {
    Subject     s;
    Arena       a;
    Run         run;      // of the whole pass
    Probe       probe;
    Sequences   text;
    Calibration c;
} Trail;

static const int32_t *tokens(int64_t vocab)
{
    static int32_t ids[N_ROWS];
    uint64_t       seed = 11;
    for (int i = 0; i < N_ROWS; i++)
        ids[i] = (int32_t)((check_uniform(&seed) + 1.0f) / 2 * (float)vocab) % (int32_t)vocab;
    return ids;
}

static Status trail_open(Trail *t, const char *name)
{
    static const int64_t number[N_WINDOWS] = {0, 1, 2, 3, 4, 5};
    ModelOptions         options = {.dtype = DTYPE_F32};
    int32_t              start[N_WINDOWS + 1];
    Batch batch = {.n_sequences = N_WINDOWS, .start = start, .number = number};
    Model *m = &t->s.m;
    for (int i = 0; i <= N_WINDOWS; i++)
        start[i] = (int32_t)START[i];
    TRY(subject_open(&t->s, golden_folder(name), &options, 2));
    t->text = (Sequences){.n = N_WINDOWS, .start = START, .ids = tokens(m->config.vocab)};
    TRY(probe_init(&t->probe, &t->a, m, 25));
    TRY(subject_run(&t->run, &t->s, t->text.ids, &batch, &t->probe, NULL));
    TRY(calibration_open(&t->c, &t->a, m, &t->text));
    t->c.batch_tokens = BATCH_ROWS;
    return OK;
}

static void trail_close(Trail *t)
{
    subject_close(&t->s);
    arena_close(&t->a);
}

/* The largest value of every channel. */
static bool same_peaks(const InputStats *s, const ValueRecord *r)
{
    for (int64_t i = 0; i < s->k; i++)
        if (s->absmax[i] != r->channel_absmax[i])
            return false;
    return s->n_rows == N_ROWS;
}

static bool is_output(const Trail *t, int64_t layer)
{
    int64_t n = N_ROWS * t->s.m.config.hidden;
    return memcmp(t->c.hidden, t->run.hidden + layer * n, (size_t)n * sizeof(float)) == 0;
}

/* reach: taps that are gone on from: 0 none, 1 and 2 every other, 3 all. */
static Status follow(Trail *t, const char *name, int reach)
{
    static const Tap TAPS[] = {TAP_QKV_IN, TAP_O_IN, TAP_MLP_IN, TAP_DOWN_IN};
    for (int64_t l = 0; l < t->s.m.config.n_layers; l++) {
        for (int i = 0; i < 4; i++) {
            InputStats s;
            bool       on = reach && (reach == 3 || i % 2 == reach - 1);
            TRY((on ? calibration_reach : calibration_inputs)(&s, &t->a, &t->c, l, TAPS[i],
                                                              false));
            if (!same_peaks(&s, &t->probe.values[TAPS[i]][l]))
                check_fail(__FILE__, __LINE__, "%s, layer %d, tap %d, reach %d: other inputs",
                           name, (int)l, i, reach);
        }
        TRY(calibration_advance(&t->c, l));
        if (!is_output(t, l))
            check_fail(__FILE__, __LINE__, "%s, layer %d, reach %d: other hidden states", name,
                       (int)l, reach);
    }
    return OK;
}

TEST(calibration_carries_what_layers_leave_for_others)
{
    int n_crosses = 0, n_memories = 0;
    for (int i = 0; i < N_NAMES; i++)
        for (int reach = 0; reach < 4; reach++) {
            Trail t = {0};
            T_STATUS_OK(trail_open(&t, NAMES[i]));
            T_STATUS_OK(follow(&t, NAMES[i], reach));
            n_crosses += t.c.keys != NULL;
            n_memories += t.c.memory != NULL;
            trail_close(&t);
        }
    T_OK(n_crosses >= 12 && n_memories >= 12);
}

TEST(matrices_of_other_layers_have_their_taps)
{
    T_OK(tap_of_weight(W_QKV) == TAP_QKV_IN && tap_of_weight(W_LAMBDA) == TAP_QKV_IN);
    T_OK(tap_of_weight(W_SSM_IN) == TAP_QKV_IN && tap_of_weight(W_SSM_U) == TAP_QKV_IN);
    T_OK(tap_of_weight(W_SSM_Z) == TAP_QKV_IN && tap_of_weight(W_GATE_UP) == TAP_MLP_IN);
    /* what Mamba computes within a layer passes no tap */
    T_OK(tap_of_weight(W_SSM_X) == TAP_HIDDEN && tap_of_weight(W_SSM_RANK) == TAP_HIDDEN);
    T_OK(tap_of_weight(W_SSM_BC) == TAP_HIDDEN && tap_of_weight(W_SSM_DT) == TAP_HIDDEN);
}

/* What a layer leaves, and a run that is resumed must find again, is all there. */
TEST(calibration_keeps_all_of_a_text)
{
    Trail t = {0};
    T_STATUS_OK(trail_open(&t, "variants/phi4flash"));
    const ModelConfig *c = &t.s.m.config;
    int64_t width = c->hidden + c->inner + model_key_width(c) + model_value_width(c);
    T_OK(t.c.n_kept == N_ROWS * width && t.c.memory == t.c.hidden + N_ROWS * c->hidden);
    T_OK(t.c.keys == t.c.memory + N_ROWS * c->inner);
    T_OK(t.c.values == t.c.keys + N_ROWS * model_key_width(c));
    trail_close(&t);
}
