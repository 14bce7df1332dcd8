/* test_calibrate.c - statistics of inputs against those of what the whole model's
 * products were given: op_linear is watched. And layer after layer is the model. */
#include "analysis/calibrate.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats/input_stats.h"
#include "kernels/half.h"
#include "tests/analysis/ref_golden.h"
#include "tests/check.h"

enum { N_OF_LLAMA = W_DOWN + 1 };   // matrices that a layer of a llama has

/* Ragged windows: a batch of all has a second part of more than 512 rows, and none is
 * of one row alone, which has a kernel of its own (backend.h, op_linear). */
static const int64_t START[] = {0, 2, 130, 250, 253, 380, 508, 600, 617};
enum { N_WINDOWS = 8, N_ROWS = 617 };

static const int32_t *tokens(void)
{
    static int32_t ids[N_ROWS];
    uint64_t       seed = 5;
    for (int i = 0; i < N_ROWS; i++)
        ids[i] = (int32_t)((check_uniform(&seed) + 1.0f) * 48.0f);
    return ids;
}

static Sequences text(void)
{
    return (Sequences){.n = N_WINDOWS, .start = START, .ids = tokens()};
}

static bool same(const void *a, const void *b, int64_t n, size_t size)
{
    return memcmp(a, b, (size_t)n * size) == 0;
}

/* --- what the products of the model are given --- */

typedef struct {
    Subject           s;
    const BackendOps *device;
    BackendOps        ops;
    Run               run;
    float            *x[4][N_OF_LLAMA];   // [N_ROWS,K] of each layer
} Watched;

static Watched watched;

static void note(const Tensor *x, const Linear *w)
{
    Model *m = &watched.s.m;
    for (int64_t l = 0; l < m->config.n_layers; l++)
        for (int kind = 0; kind < N_OF_LLAMA; kind++)
            if (w == &m->layers[l].w[kind])
                memcpy(watched.x[l][kind], x->data, tensor_bytes(x));
}

static Status watch_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w)
{
    note(x, w);
    return watched.device->linear(be, y, x, w);
}

static Status watch_linears(Backend *be, const LinearOut *outs, int n, const Tensor *x)
{
    for (int i = 0; i < n; i++)
        note(x, outs[i].w);
    return watched.device->linears(be, outs, n, x);
}

static Status watch(const char *name, Dtype dtype)
{
    ModelOptions options = {.dtype = dtype};
    int32_t      start[N_WINDOWS + 1];
    int64_t      number[N_WINDOWS] = {0};
    Batch        batch = {.n_sequences = N_WINDOWS, .start = start, .number = number};
    Model       *m = &watched.s.m;
    TRY(subject_open(&watched.s, golden_folder(name), &options, 2));
    CHECK(m->config.n_layers <= 4);
    for (int64_t l = 0; l < m->config.n_layers; l++)
        for (int kind = 0; kind < N_OF_LLAMA; kind++)
            ARENA_NEW(watched.x[l][kind], &watched.s.arena, N_ROWS * m->layers[l].w[kind].k);
    for (int i = 0; i <= N_WINDOWS; i++)
        start[i] = (int32_t)START[i];
    watched.device = watched.s.be.ops;
    watched.ops = *watched.device;
    watched.ops.linear = watch_linear;
    if (watched.device->linears)
        watched.ops.linears = watch_linears;
    watched.s.be.ops = &watched.ops;
    return subject_run(&watched.run, &watched.s, tokens(), &batch, NULL, NULL);
}

/* --- layer by layer --- */

typedef struct {
    Arena        a;
    Backend      be;
    Layers       l;
    Model        m;
    LayerWeights w[4];
    Sequences    text;
    Calibration  c;
} Trail;

static Status trail_open(Trail *t, const char *name, Dtype dtype, int n_threads)
{
    *t = (Trail){.text = text()};
    TRY(backend_open(&t->be, "cpu", n_threads));
    TRY(layers_open(&t->l, &t->a, golden_folder(name)));
    TRY(layers_model(&t->m, &t->a, &t->be, &t->l, dtype));
    CHECK(t->m.config.n_layers <= 4);
    for (int64_t i = 0; i < t->m.config.n_layers; i++)
        TRY(layers_read(&t->w[i], &t->a, &t->l, i));
    return calibration_open(&t->c, &t->a, &t->m, &t->text);
}

static void trail_close(Trail *t)
{
    layers_close(&t->l);
    backend_close(&t->be);
    arena_close(&t->a);
}

/* Matrices first .. end of a layer, without norms where first is not 0. */
static Status place(Trail *t, int64_t layer, int first, int end)
{
    LayerWeights w = t->w[layer];
    for (int kind = 0; kind < N_OF_LLAMA; kind++)
        if (kind < first || kind >= end)
            w.at[kind].w = NULL;
    if (first > 0)
        w.norm[0] = w.norm[1] = NULL;
    return layers_place(&t->m, &t->l, &w);
}

/* --- the statistics --- */

static const struct {
    Tap        tap;
    WeightKind kind;   // a matrix it feeds
    int        before; // matrices that it needs
} TAPS[] = {{TAP_QKV_IN, W_V, 0}, {TAP_O_IN, W_O, 3}, {TAP_MLP_IN, W_GATE, 4},
            {TAP_DOWN_IN, W_DOWN, 6}};
enum { N_INPUTS = sizeof TAPS / sizeof *TAPS };

TEST(calibration_tap_of_each_matrix)
{
    static const Tap WANT[N_OF_LLAMA] = {TAP_QKV_IN, TAP_QKV_IN, TAP_QKV_IN, TAP_O_IN,
                                        TAP_MLP_IN, TAP_MLP_IN, TAP_DOWN_IN};
    for (int kind = 0; kind < N_OF_LLAMA; kind++)
        T_OK(tap_of_weight((WeightKind)kind) == WANT[kind]);
}

/* Worst |gram - exact| and the same of a plain float loop over parts of 512 rows, as a
 * share of sqrt(G_ii G_jj). */
static void gram_errors(double *ours, double *plain, const double *gram, const float *x,
                        int64_t T, int64_t K)
{
    double *norm = malloc((size_t)K * sizeof *norm);
    *ours = *plain = 0;
    for (int64_t i = 0; i < K; i++) {
        norm[i] = 0;
        for (int64_t t = 0; t < T; t++)
            norm[i] += (double)x[t * K + i] * x[t * K + i];
    }
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j <= i; j++) {
            double exact = 0, parts = 0, scale = sqrt(norm[i] * norm[j]) + DBL_MIN;
            float  part = 0;
            for (int64_t t = 0; t < T; t++) {
                exact += (double)x[t * K + i] * x[t * K + j];
                part += x[t * K + i] * x[t * K + j];
                if (t % 512 == 511 || t == T - 1) {
                    parts += (double)part;
                    part = 0;
                }
            }
            double e = fabs(gram[i * K + j] - exact) / scale;
            *ours = !(e <= *ours) ? e : *ours;
            *plain = fmax(*plain, fabs(parts - exact) / scale);
        }
    free(norm);
}

/* Channel sums in the order of the rows: equal to the last bit. */
static bool sums_are(const InputStats *s, const float *x, int64_t T)
{
    for (int64_t c = 0; c < s->k; c++) {
        double sum_abs = 0, sum2 = 0;
        float  top = 0;
        for (int64_t t = 0; t < T; t++) {
            float v = x[t * s->k + c];
            sum_abs += (double)fabsf(v);
            sum2 += (double)v * v;
            top = fmaxf(top, fabsf(v));
        }
        if (s->sum_abs[c] != sum_abs || s->sum2[c] != sum2 || s->absmax[c] != top)
            return false;
    }
    return true;
}

static bool symmetric(const InputStats *s)
{
    for (int64_t i = 0; i < s->k; i++)
        for (int64_t j = 0; j < i; j++)
            if (s->gram[i * s->k + j] != s->gram[j * s->k + i])
                return false;
    return true;
}

/* The gram is of what the products make of the inputs. */
static void check_inputs(const char *name, const InputStats *s, const float *x, int tap,
                         int64_t layer)
{
    double ours, plain;
    float *rounded = malloc((size_t)(N_ROWS * s->k) * sizeof *rounded);
    for (int64_t i = 0; i < N_ROWS * s->k; i++)
        rounded[i] = s->dtype == DTYPE_BF16 ? bf16_round(x[i]) : x[i];
    gram_errors(&ours, &plain, s->gram, rounded, N_ROWS, s->k);
    free(rounded);
    if (s->n_rows != N_ROWS || !sums_are(s, x, N_ROWS) || !symmetric(s) ||
        !(ours <= 2 * plain))
        check_fail(__FILE__, __LINE__, "%s, layer %d, tap %d: gram off by %.1e, a float loop "
                   "by %.1e", name, (int)layer, tap, ours, plain);
}

/* Each matrix is placed only when the taps before it are done; reach: and the layer goes on
 * from there. */
static Status follow(Trail *t, const char *name, bool reach)
{
    for (int64_t l = 0; l < t->m.config.n_layers; l++) {
        int placed = 0;
        for (int i = 0; i < N_INPUTS; i++) {
            InputStats s;
            TRY(place(t, l, placed, TAPS[i].before));
            placed = TAPS[i].before;
            TRY((reach ? calibration_reach : calibration_inputs)(&s, &t->a, &t->c, l,
                                                                 TAPS[i].tap, true));
            CHECK(s.k == watched.s.m.layers[l].w[TAPS[i].kind].k);
            CHECK(s.dtype == t->m.dtype);
            check_inputs(name, &s, watched.x[l][TAPS[i].kind], i, l);
        }
        TRY(place(t, l, placed, N_OF_LLAMA));
        TRY(calibration_advance(&t->c, l));
        int64_t n = N_ROWS * t->m.config.hidden;
        if (!same(t->c.hidden, watched.run.hidden + l * n, n, sizeof(float)))
            check_fail(__FILE__, __LINE__, "%s: layer %d gives other hidden states", name,
                       (int)l);
    }
    return OK;
}

static const char *const NAMES[] = {
    "models/diff_wide", "models/diff_odd_kv", "models/diff_bias_gelu",
    "models/llama_bias_gelu_tanh", "models/rope_dynamic"};
enum { N_NAMES = sizeof NAMES / sizeof *NAMES };

TEST(calibration_sees_what_the_products_see)
{
    for (int i = 0; i < N_NAMES; i++)
        for (int way = 0; way < 4; way++) {
            bool  bf16 = way % 2;
            Dtype dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
            Trail t;
            T_STATUS_OK(watch(NAMES[i], dtype));
            T_STATUS_OK(trail_open(&t, NAMES[i], dtype, 2));
            t.c.batch_tokens = bf16 ? 300 : 0;
            T_STATUS_OK(follow(&t, NAMES[i], way / 2));
            trail_close(&t);
            subject_close(&watched.s);
        }
}

/* More rows and wider ones than what goes at once, some channels large and one always 0. */
static float *draw_wide(int64_t T, int64_t K)
{
    float   *x = malloc((size_t)(T * K) * sizeof *x);
    uint64_t seed = 17;
    for (int64_t i = 0; i < T * K; i++)
        x[i] = (i % K == 7 ? 300.0f : i % K == 600 ? 0.0f : 1.0f) * check_normal(&seed);
    return x;
}

/* Upper half, row after row of x. */
static void exact_gram(double *gram, const float *x, int64_t T, int64_t K)
{
    memset(gram, 0, (size_t)(K * K) * sizeof *gram);
    for (int64_t t = 0; t < T; t++, x += K)
        for (int64_t i = 0; i < K; i++)
            for (int64_t j = i; j < K; j++)
                gram[i * K + j] += (double)x[i] * x[j];
}

TEST(calibration_of_wide_rows)
{
    enum { T = 523, K = 1091 };
    Arena      a = {0};
    Backend    be;
    InputStats s;
    Tensor     x;
    float     *rows = draw_wide(T, K);
    double    *want = malloc(sizeof(double) * K * K);
    exact_gram(want, rows, T, K);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(input_stats_init(&s, &a, K, true));
    T_STATUS_OK(backend_tensor(&be, &x, 2, (int64_t[]){T, K}));
    T_STATUS_OK(backend_upload(&be, &x, rows));
    T_STATUS_OK(input_stats_add(&s, &a, &be, &x, "test"));
    input_stats_close(&s);
    T_OK(sums_are(&s, rows, T) && symmetric(&s));
    T_OK(s.gram[600 * K + 600] == 0 && s.gram[600 * K + 7] == 0);
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = i; j < K; j++)
            T_NEAR(s.gram[i * K + j], want[i * K + j],
                   2e-6 * sqrt(want[i * K + i] * want[j * K + j]));
    free(rows);
    free(want);
    backend_close(&be);
    arena_close(&a);
}

/* --- independence --- */

static Status all_inputs(InputStats s[N_INPUTS], Trail *t, int64_t batch_tokens)
{
    t->c.batch_tokens = batch_tokens;
    TRY(place(t, 0, 0, N_OF_LLAMA));
    for (int i = 0; i < N_INPUTS; i++)
        TRY(calibration_inputs(&s[i], &t->a, &t->c, 0, TAPS[i].tap, true));
    return OK;
}

static bool same_sums(const InputStats *a, const InputStats *b)
{
    return a->k == b->k && a->n_rows == b->n_rows &&
           same(a->sum_abs, b->sum_abs, a->k, sizeof(double)) &&
           same(a->sum2, b->sum2, a->k, sizeof(double)) &&
           same(a->absmax, b->absmax, a->k, sizeof(float));
}

TEST(calibration_does_not_depend_on_threads)
{
    for (int i = 0; i < N_NAMES; i++) {
        Trail      one, many;
        InputStats a[N_INPUTS], b[N_INPUTS];
        T_STATUS_OK(trail_open(&one, NAMES[i], DTYPE_F32, 1));
        T_STATUS_OK(all_inputs(a, &one, 0));
        for (int threads = 2; threads <= 3; threads++) {
            T_STATUS_OK(trail_open(&many, NAMES[i], DTYPE_F32, threads));
            T_STATUS_OK(all_inputs(b, &many, 0));
            for (int k = 0; k < N_INPUTS; k++)
                T_OK(same_sums(&a[k], &b[k]) &&
                     same(a[k].gram, b[k].gram, a[k].k * a[k].k, sizeof(double)));
            trail_close(&many);
        }
        trail_close(&one);
    }
}

/* Sums over other parts of at most 512 rows, f32 each: about sqrt(512) 2^-24 = 1.3e-6 of
 * what the channels' sizes make possible. */
TEST(calibration_does_not_depend_on_batches)
{
    static const int64_t BATCHES[] = {1, 130, 1000000};
    Trail      t;
    InputStats a[N_INPUTS], b[N_INPUTS];
    T_STATUS_OK(trail_open(&t, "models/diff_wide", DTYPE_F32, 2));
    T_STATUS_OK(all_inputs(a, &t, 0));
    for (int i = 0; i < 3; i++) {
        T_STATUS_OK(all_inputs(b, &t, BATCHES[i]));
        for (int k = 0; k < N_INPUTS; k++) {
            int64_t K = a[k].k;
            T_OK(same_sums(&a[k], &b[k]));
            for (int64_t n = 0; n < K * K; n++)
                T_NEAR(b[k].gram[n], a[k].gram[n],
                       2e-6 * sqrt(a[k].gram[n / K * (K + 1)] * a[k].gram[n % K * (K + 1)]));
        }
    }
    trail_close(&t);
}

TEST(calibration_without_gram_has_the_same_sums)
{
    Trail      t;
    InputStats with[N_INPUTS], without;
    T_STATUS_OK(trail_open(&t, "models/diff_gqa", DTYPE_F32, 2));
    T_STATUS_OK(all_inputs(with, &t, 0));
    for (int i = 0; i < N_INPUTS; i++) {
        T_STATUS_OK(calibration_inputs(&without, &t.a, &t.c, 0, TAPS[i].tap, false));
        T_OK(!without.gram && same_sums(&with[i], &without));
    }
    trail_close(&t);
}

typedef struct {
    int     calls;
    int64_t last;
    char    what[64];
} Steps;

static void step(void *context, int64_t done, int64_t total, const char *what)
{
    Steps *s = context;
    s->calls += done > s->last && total == N_ROWS;
    s->last = done;
    snprintf(s->what, sizeof s->what, "%s", what);
}

TEST(calibration_tells_how_far_it_is)
{
    Trail      t;
    InputStats s;
    Steps      steps = {0};
    Progress   progress = {step, &steps};
    T_STATUS_OK(trail_open(&t, "models/llama_gqa", DTYPE_F32, 2));
    T_STATUS_OK(place(&t, 1, 0, N_OF_LLAMA));
    t.c.progress = &progress;
    t.c.batch_tokens = 1;
    T_STATUS_OK(calibration_inputs(&s, &t.a, &t.c, 1, TAP_DOWN_IN, false));
    T_OK(steps.calls == N_WINDOWS && steps.last == N_ROWS);
    T_TEXT(steps.what, "layer 1, down_in");
    trail_close(&t);
}

TEST(calibration_on_no_text)
{
    static const int64_t none[1] = {0};
    Trail      t;
    InputStats s;
    T_STATUS_OK(trail_open(&t, "models/llama_gqa", DTYPE_F32, 2));
    T_STATUS_OK(place(&t, 0, 0, 0));
    t.text = (Sequences){.n = 0, .start = none};
    T_STATUS_OK(calibration_open(&t.c, &t.a, &t.m, &t.text));
    T_STATUS_OK(calibration_inputs(&s, &t.a, &t.c, 0, TAP_QKV_IN, true));
    T_STATUS_OK(calibration_advance(&t.c, 0));
    T_OK(s.n_rows == 0 && s.gram[0] == 0 && s.sum2[s.k - 1] == 0);
    trail_close(&t);
}

/* --- what is refused --- */

TEST(calibration_names_what_is_not_finite)
{
    Trail      t;
    InputStats s;
    T_STATUS_OK(trail_open(&t, "models/diff_gqa", DTYPE_F32, 2));
    T_STATUS_OK(place(&t, 0, 0, N_OF_LLAMA));
    int64_t C = t.m.config.hidden;
    t.c.hidden[600 * C + 9] = NAN;
    T_FAILS(calibration_inputs(&s, &t.a, &t.c, 0, TAP_QKV_IN, true), ERR_RANGE,
            "layer 0, qkv_in: channel 0 of token 600 of the text is NaN, expected a finite");
    T_FAILS(calibration_inputs(&s, &t.a, &t.c, 0, TAP_MLP_IN, false), ERR_RANGE,
            "layer 0, mlp_in: channel 0 of token 600 of the text is NaN");
    t.c.hidden[600 * C + 9] = 0;
    t.w[0].norm[0][5] = FLT_MAX;
    T_STATUS_OK(place(&t, 0, 0, 0));
    T_FAILS(calibration_inputs(&s, &t.a, &t.c, 0, TAP_QKV_IN, false), ERR_RANGE, "inf, exp");
    T_OK(strstr(status_text(), "layer 0, qkv_in: channel 5 of token "));
    t.w[0].norm[0][5] = 1e19f;
    T_STATUS_OK(place(&t, 0, 0, 0));
    size_t used = t.be.arena.used;
    T_STATUS_OK(calibration_inputs(&s, &t.a, &t.c, 0, TAP_QKV_IN, false));
    T_OK(s.absmax[5] > 1e18f && s.sum2[5] > 1e36);
    T_FAILS(calibration_inputs(&s, &t.a, &t.c, 0, TAP_QKV_IN, true), ERR_RANGE,
            "layer 0, qkv_in: channel 5 reaches");
    T_OK(t.be.arena.used == used);
    trail_close(&t);
}

TEST(calibration_looks_at_no_weights_past_the_tap)
{
    Trail      t;
    InputStats s;
    T_STATUS_OK(trail_open(&t, "models/diff_gqa", DTYPE_F32, 2));
    T_STATUS_OK(place(&t, 0, 0, 3));
    T_STATUS_OK(calibration_inputs(&s, &t.a, &t.c, 0, TAP_O_IN, true));
    T_FAILS(calibration_inputs(&s, &t.a, &t.c, 0, TAP_MLP_IN, true), ERR_SHAPE, "linear: ");
    T_FAILS(calibration_advance(&t.c, 0), ERR_SHAPE, "linear: ");
    trail_close(&t);
}

TEST(calibration_refuses_a_token_outside_the_vocabulary)
{
    Trail   t;
    int32_t ids[N_ROWS];
    T_STATUS_OK(trail_open(&t, "models/diff_gqa", DTYPE_F32, 2));
    size_t used = t.be.arena.used;
    memcpy(ids, tokens(), sizeof ids);
    ids[300] = 101;
    t.text.ids = ids;
    T_FAILS(calibration_open(&t.c, &t.a, &t.m, &t.text), ERR_RANGE, "token id 300 is 101");
    T_OK(t.be.arena.used == used);
    trail_close(&t);
}

/* --- the error of outputs --- */

enum { ERROR_N = 300, ERROR_K = 90 };   // more rows than go at once

typedef struct {
    float  w[ERROR_N * ERROR_K], v[ERROR_N * ERROR_K];
    double gram[ERROR_K * ERROR_K];
    InputStats s;
} Case;

/* Inputs that hang together, rank 40 and a little noise: some directions cost much
 * more than others. */
static void draw(Case *c, double inputs, double weights)
{
    static float x[500 * ERROR_K], basis[40 * ERROR_K];
    uint64_t     seed = 3;
    for (int i = 0; i < 40 * ERROR_K; i++)
        basis[i] = check_normal(&seed);
    for (int t = 0; t < 500; t++)
        for (int k = 0; k < ERROR_K; k++)
            x[t * ERROR_K + k] = 0.1f * check_normal(&seed);
    for (int t = 0; t < 500; t++)
        for (int b = 0; b < 40; b++) {
            float s = check_normal(&seed);
            for (int k = 0; k < ERROR_K; k++)
                x[t * ERROR_K + k] += s * basis[b * ERROR_K + k];
        }
    memset(c->gram, 0, sizeof c->gram);
    for (int t = 0; t < 500; t++)
        for (int i = 0; i < ERROR_K; i++)
            for (int j = 0; j < ERROR_K; j++)
                c->gram[i * ERROR_K + j] += inputs * inputs * x[t * ERROR_K + i] *
                                            x[t * ERROR_K + j];
    for (int i = 0; i < ERROR_N * ERROR_K; i++) {
        c->w[i] = (float)(weights * check_normal(&seed));
        c->v[i] = c->w[i] + (float)(weights * 0.01 * check_normal(&seed));
    }
    c->s = (InputStats){.k = ERROR_K, .n_rows = 500, .gram = c->gram};
}

/* In double; *gross: with magnitudes in place of all values. */
static double exact_error(double *gross, const Case *c, const float *v)
{
    double sum = 0;
    *gross = 0;
    for (int n = 0; n < ERROR_N; n++)
        for (int i = 0; i < ERROR_K; i++)
            for (int j = 0; j < ERROR_K; j++) {
                int64_t a = n * ERROR_K + i, b = n * ERROR_K + j;
                double  di = (double)c->w[a] - (v ? v[a] : 0), g = c->gram[i * ERROR_K + j];
                double  dj = (double)c->w[b] - (v ? v[b] : 0);
                sum += di * g * dj;
                *gross += fabs(di * g * dj);
            }
    return sum;
}

TEST(input_error_against_double)
{
    static const double SIZES[][2] = {{1, 0.02}, {1e4, 1}, {1e15, 1e10}, {1e-15, 1e-12}};
    static Case c;
    Backend     be;
    Arena       a = {0};
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    size_t used = be.arena.used;
    for (int i = 0; i < 4; i++) {
        double got, gross;
        draw(&c, SIZES[i][0], SIZES[i][1]);
        for (int zeros = 0; zeros < 2; zeros++) {
            const float *v = zeros ? NULL : c.v;
            double       want = exact_error(&gross, &c, v);
            got = NAN;
            T_STATUS_OK(input_error(&got, &a, &be, &c.s, c.w, v, ERROR_N));
            T_NEAR(got / want, 1, 1e-6 * gross / want);
            T_NEAR(got / want, 1, 1e-5);
        }
        T_STATUS_OK(input_error(&got, &a, &be, &c.s, c.w, c.w, ERROR_N));
        T_OK(got == 0 && !signbit(got));
        T_OK(a.used == 0 && be.arena.used == used);
    }
    backend_close(&be);
    arena_close(&a);
}

/* A difference that the inputs do not see: rounding may not take it below zero. */
TEST(input_error_is_never_negative)
{
    static Case c;
    Backend     be;
    Arena       a = {0};
    double      got = NAN;
    draw(&c, 1, 1);
    for (int i = 0; i < ERROR_K; i++)
        for (int j = 0; j < ERROR_K; j++)
            c.gram[i * ERROR_K + j] = (1 + 0.1 * i) * (1 + 0.1 * j);
    for (int n = 0; n < ERROR_N; n++)   // across (1 + 0.1 k): only rounding is left
        for (int k = 0; k < ERROR_K; k += 2) {
            c.w[n * ERROR_K + k + 1] = c.w[n * ERROR_K + k] *
                                       (float)(-(1 + 0.1 * k) / (1.1 + 0.1 * k));
        }
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(input_error(&got, &a, &be, &c.s, c.w, NULL, ERROR_N));
    T_OK(got >= 0 && got < 1);
    backend_close(&be);
    arena_close(&a);
}

TEST(input_error_refuses_what_is_not_finite)
{
    static Case c;
    static const float BAD[] = {NAN, INFINITY, -INFINITY};
    Backend            be;
    Arena              a = {0};
    double             got = 7;
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    for (int i = 0; i < 3; i++) {
        draw(&c, 1, 1);
        c.w[77] = BAD[i];
        T_FAILS(input_error(&got, &a, &be, &c.s, c.w, c.v, ERROR_N), ERR_RANGE, "NaN or inf");
        T_FAILS(input_error(&got, &a, &be, &c.s, c.w, c.w, ERROR_N), ERR_RANGE, "NaN or inf");
        T_FAILS(input_error(&got, &a, &be, &c.s, c.v, c.w, ERROR_N), ERR_RANGE, "NaN or inf");
        draw(&c, 1, 1);
        c.gram[5] = (double)BAD[i];
        T_FAILS(input_error(&got, &a, &be, &c.s, c.w, c.v, ERROR_N), ERR_RANGE, "NaN or inf");
    }
    T_OK(got == 7);
    backend_close(&be);
    arena_close(&a);
}

/* From the gram, what the outputs themselves say. */
TEST(input_error_is_that_of_the_outputs)
{
    Trail      t;
    InputStats s;
    double     got = NAN, want = 0;
    T_STATUS_OK(watch("models/diff_wide", DTYPE_F32));
    T_STATUS_OK(trail_open(&t, "models/diff_wide", DTYPE_F32, 2));
    T_STATUS_OK(place(&t, 0, 0, N_OF_LLAMA));
    T_STATUS_OK(calibration_inputs(&s, &t.a, &t.c, 0, TAP_DOWN_IN, true));
    const LayerMatrix *m = &t.w[0].at[W_DOWN];
    float             *v = arena_raw(&t.a, m->n * m->k, sizeof *v);
    for (int64_t i = 0; i < m->n * m->k; i++)
        v[i] = roundf(m->w[i] * 16) / 16;
    for (int64_t r = 0; r < N_ROWS; r++)
        for (int64_t n = 0; n < m->n; n++) {
            double y = 0;
            for (int64_t k = 0; k < m->k; k++)
                y += (double)watched.x[0][W_DOWN][r * m->k + k] *
                     ((double)m->w[n * m->k + k] - v[n * m->k + k]);
            want += y * y;
        }
    T_STATUS_OK(input_error(&got, &t.a, &t.be, &s, m->w, v, m->n));
    T_OK(want > 0);
    T_NEAR(got / want, 1, 1e-5);
    trail_close(&t);
    subject_close(&watched.s);
}

/* --- under stress --- */

static Status whole_run(Trail *t, Arena *a)
{
    static const float v[32 * 56];
    InputStats s;
    double     e;
    TRY(calibration_open(&t->c, a, &t->m, &t->text));
    t->c.batch_tokens = 300;
    TRY(calibration_inputs(&s, a, &t->c, 0, TAP_DOWN_IN, true));
    TRY(input_error(&e, a, &t->be, &s, t->w[0].at[W_DOWN].w, v, 32));
    return calibration_advance(&t->c, 0);
}

TEST(calibration_every_allocation_may_fail)
{
    Trail t;
    T_STATUS_OK(trail_open(&t, "models/diff_gqa", DTYPE_F32, 2));
    T_STATUS_OK(place(&t, 0, 0, N_OF_LLAMA));
    size_t  used = t.be.arena.used;
    int64_t k = 1;
    for (Status s = ERR_MEMORY; s != OK; k++) {
        Arena a = {0};
        arena_fail_at(k);
        s = whole_run(&t, &a);
        arena_fail_at(0);
        arena_close(&a);
        T_OK((s == OK || s == ERR_MEMORY) && t.be.arena.used == used);
    }
    T_OK(k > 50);
    trail_close(&t);
}
