/* test_awq.c - scaling lowers the error of the outputs, never raises it, and leaves the
 * layer's function alone; what scaling v would do to a differential layer. */
#include "quant/methods/awq.h"

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "quant/methods/fold.h"
#include "quant/methods/method.h"
#include "tests/check.h"
#include "tests/quant/ref_layer.h"
#include "tests/quant/ref_stats.h"

enum { T = 24, N_SHAPES = 4 };

static const RefShape SHAPES[N_SHAPES] = {
    {32, 48, 4, 1, 8, 4, true, false},      // plain
    {32, 1100, 4, 1, 8, 2, false, false},   // grouped; more rows than the tries look at
    {32, 40, 2, 2, 8, 4, false, true},      // differential
    {32, 40, 2, 2, 8, 4, false, false},     // the same without the norm of the heads
};

typedef struct {
    Arena        a;
    Backend      be;
    RefShape     s;
    LayerWeights w;
    ValueMap     map;
    Scheme       scheme[N_WEIGHTS];
    double      *x, *y, *got;  // [T,C]
    RefTaps      taps;
} Case;

static void case_open(Case *c, RefShape s, Method method, uint64_t seed)
{
    RefLayer plain;
    *c = (Case){.s = s};
    CHECK(backend_open(&c->be, "cpu", 1) == OK);
    ref_layer_random(&c->w, &c->a, &s, seed);
    ref_layer_map(&c->map, &c->a, &s);
    ref_layer_widen(&plain, &c->a, &c->w);
    for (int i = 0; i < N_WEIGHTS; i++)
        c->scheme[i] = (Scheme){4, 0, false, DTYPE_F16, method};
    c->x = arena_alloc(&c->a, T * s.C, sizeof *c->x);
    c->y = arena_alloc(&c->a, T * s.C, sizeof *c->x);
    c->got = arena_alloc(&c->a, T * s.C, sizeof *c->x);
    CHECK(c->x && c->y && c->got);
    for (int64_t i = 0; i < T * s.C; i++)
        c->x[i] = (i % s.C == 5 ? 20 : 1) * (double)check_normal(&seed);
    ref_layer_run(c->y, &c->taps, &c->a, &s, &plain, c->x, T);
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->a);
}

static double case_error(Case *c, RefTaps *taps)
{
    RefLayer now;
    ref_layer_widen(&now, &c->a, &c->w);
    ref_layer_run(c->got, taps, &c->a, &c->s, &now, c->x, T);
    return ref_layer_error(c->got, c->y, T * c->s.C);
}

/* ||x (w - w')^T||^2 for rows x [T,K] of what m reads, w' rounded by the scheme. */
static double output_error(Case *c, WeightKind kind, const double *x)
{
    const LayerMatrix *m = &c->w.at[kind];
    const Scheme      *s = &c->scheme[kind];
    int64_t            N = m->n, K = m->k;
    InputStats         in;
    ArenaMark          mark = arena_mark(&c->a);
    float             *v = arena_alloc(&c->a, N * K, sizeof *v);
    RtnCodes           codes = {arena_alloc(&c->a, N * K, 1), arena_alloc(&c->a, N * K, 4),
                                arena_alloc(&c->a, N * K, 1)};
    double             error = 0;
    memcpy(v, m->w, (size_t)(N * K) * sizeof *v);
    ref_stats(&in, &c->a, x, T, K);
    Matrix q = {.name = "w", .n = N, .k = K, .w = v, .scheme = *s, .inputs = &in};
    CHECK((s->method == METHOD_RTN ? rtn_fake(v, "w", N, K, s, NULL)
                                   : clip_encode(&codes, &q, &c->a)) == OK);
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++) {
            double d = 0;
            for (int64_t k = 0; k < K; k++)
                d += x[t * K + k] * ((double)m->w[n * K + k] - (double)v[n * K + k]);
            error += d * d;
        }
    arena_rewind(&c->a, mark);
    return error;
}

/* The four places that are scaled. */
typedef enum { QKV, MLP, DOWN, VALUE, N_PLACES } Place;

static const double *tap(const RefTaps *t, Place p)
{
    return p == QKV ? t->qkv : p == MLP ? t->mlp : p == DOWN ? t->down : t->o;
}

static double place_error(Case *c, Place p, const RefTaps *t)
{
    const double *x = tap(t, p);
    switch (p) {
    case QKV:
        return output_error(c, W_Q, x) + output_error(c, W_K, x) + output_error(c, W_V, x);
    case MLP:
        return output_error(c, W_GATE, x) + output_error(c, W_UP, x);
    case DOWN:
        return output_error(c, W_DOWN, x);
    default:
        return output_error(c, W_O, x);
    }
}

static int64_t width(const Case *c, Place p)
{
    return p == DOWN ? c->s.F : p == VALUE ? c->w.at[W_O].k : c->s.C;
}

static Status scale(Case *c, Place p, InputStats *in, double *ratio)
{
    switch (p) {
    case QKV:
    case MLP:
        return awq_norm(&c->w, p == MLP, in, c->scheme, &c->a, &c->be, ratio);
    case DOWN:
        return awq_up_down(&c->w, &c->w.at[W_UP], in, c->scheme, &c->a, &c->be, ratio);
    default:
        return awq_value_out(&c->w, &c->map, c->s.head_norm ? 1e-5 : -1, in, c->scheme, &c->a,
                             &c->be, ratio);
    }
}

static bool norms_are_stored_exactly(const LayerWeights *w, int norm, int64_t C)
{
    for (int64_t k = 0; k < C; k++)
        if (w->norm[norm][k] != bf16_round(w->norm[norm][k]))
            return false;
    return true;
}

/* One place of one layer: the error falls or stays, the function stays, in is what the
 * new layer's inputs are. Returns error after / before, NaN where something is wrong. */
static double gain(Case *c, Place p)
{
    InputStats in, want;
    RefTaps    now;
    double     ratio = NAN, before = place_error(c, p, &c->taps);
    ref_stats(&in, &c->a, tap(&c->taps, p), T, width(c, p));
    size_t used = c->a.used;
    if (scale(c, p, &in, &ratio) != OK || c->a.used != used || !(ratio >= 0 && ratio < 1))
        return NAN;
    if (!(case_error(c, &now) <= 2e-6))
        return NAN;
    ref_stats(&want, &c->a, tap(&now, p), T, width(c, p));
    if (!(ref_stats_error(&in, &want) <= 2e-6))
        return NAN;
    if (ratio > 0 && p <= MLP && !norms_are_stored_exactly(&c->w, p == MLP, c->s.C))
        return NAN;
    double after = place_error(c, p, &now);
    /* ratio 0: nothing moved */
    return ratio > 0 || after == before ? after / before : NAN;
}

TEST(error_falls_and_the_function_stays)
{
    double log_gain[N_PLACES] = {0};
    int    times[N_PLACES] = {0};
    for (int i = 0; i < N_SHAPES * N_PLACES * 2; i++) {
        Case  c;
        Place p = (Place)(i / N_SHAPES % N_PLACES);
        if ((p == VALUE) != (i % N_SHAPES == 3) && (p != VALUE || i % N_SHAPES))
            continue;
        case_open(&c, SHAPES[i % N_SHAPES], (Method)(i / (N_SHAPES * N_PLACES)), (uint64_t)i);
        double g = gain(&c, p);
        /* the sums of the search are f32 */
        T_OK(g <= 1 + 1e-4);
        log_gain[p] += log(g);
        times[p]++;
        case_close(&c);
    }
    /* input channels of nine times the rest, one of twenty: that is what it is for */
    T_OK(exp(log_gain[QKV] / times[QKV]) < 0.8);
    T_OK(exp(log_gain[MLP] / times[MLP]) < 0.8);
    T_OK(exp(log_gain[DOWN] / times[DOWN]) < 0.97);
}

TEST(groups_and_zeros_too)
{
    Case c;
    case_open(&c, SHAPES[0], METHOD_GPTQ, 4);
    for (int i = 0; i < N_WEIGHTS; i++)
        c.scheme[i] = (Scheme){4, 16, true, DTYPE_BF16, METHOD_GPTQ};
    T_OK(gain(&c, QKV) < 0.95);
    case_close(&c);
}

TEST(norm_of_the_heads_refuses_scaled_values)
{
    InputStats in;
    double     ratio;
    Case       c;
    case_open(&c, SHAPES[2], METHOD_RTN, 4);
    ref_stats(&in, &c.a, c.taps.o, T, c.w.at[W_O].k);
    T_FAILS(scale(&c, VALUE, &in, &ratio), ERR_UNSUPPORTED, "the norm of each head");
    T_OK(case_error(&c, NULL) == 0);
    case_close(&c);
    case_open(&c, SHAPES[1], METHOD_RTN, 4);
    ref_stats(&in, &c.a, c.taps.o, T, c.w.at[W_O].k);
    T_FAILS(scale(&c, VALUE, &in, &ratio), ERR_UNSUPPORTED, "16 rows for 32 columns");
    case_close(&c);
}

/* What it would do: v's rows divided by s, o's columns times the same s, by the map of
 * heads or, as tools do that know no pairs, one after the other. */
static double scaled_values_error(RefShape shape, bool by_map)
{
    Case     c;
    float    s[64], rows[64];
    uint64_t seed = 5;
    case_open(&c, shape, METHOD_RTN, 4);
    for (int64_t i = 0; i < c.w.at[W_O].k; i++) {
        int64_t head = by_map ? c.map.head[i / c.s.d] : i / c.s.d;
        s[i] = expf(check_normal(&seed));
        rows[head * c.s.d + i % c.s.d] = s[i];
    }
    fold_rows(&c.w.at[W_V], rows);
    fold_columns(&c.w.at[W_O], s);
    double error = case_error(&c, NULL);
    case_close(&c);
    return error;
}

TEST(scaled_values_would_change_a_differential_layer)
{
    T_OK(scaled_values_error(SHAPES[0], true) <= 2e-6);
    T_OK(scaled_values_error(SHAPES[2], true) > 0.02);
    T_OK(scaled_values_error(SHAPES[2], false) > 0.02);
    /* without the norm only the order of heads matters */
    T_OK(scaled_values_error(SHAPES[3], true) <= 2e-6);
    T_OK(scaled_values_error(SHAPES[3], false) > 0.02);
}

TEST(what_is_not_rounded_is_not_scaled)
{
    InputStats in;
    double     ratio = NAN;
    Case       c;
    case_open(&c, SHAPES[0], METHOD_RTN, 4);
    memset(c.scheme, 0, sizeof c.scheme);
    ref_stats(&in, &c.a, c.taps.qkv, T, c.s.C);
    T_STATUS_OK(scale(&c, QKV, &in, &ratio));
    T_OK(ratio == 0 && case_error(&c, NULL) == 0);
    /* one of three is rounded: all three are scaled */
    c.scheme[W_K] = (Scheme){4, 0, false, DTYPE_F16, METHOD_RTN};
    T_STATUS_OK(scale(&c, QKV, &in, &ratio));
    T_OK(ratio > 0 && case_error(&c, NULL) <= 2e-6);
    case_close(&c);
}

TEST(inputs_that_were_always_zero_keep_their_columns)
{
    InputStats in;
    double     ratio;
    Case       c;
    case_open(&c, SHAPES[0], METHOD_RTN, 4);
    for (int64_t t = 0; t < T; t++)
        c.taps.qkv[t * c.s.C + 9] = 0;
    ref_stats(&in, &c.a, c.taps.qkv, T, c.s.C);
    float was = c.w.at[W_Q].w[9], norm = bf16_round(c.w.norm[0][9]);
    T_STATUS_OK(scale(&c, QKV, &in, &ratio));
    T_OK(ratio > 0);
    T_NEAR(c.w.norm[0][9], norm, 0);
    T_NEAR(c.w.at[W_Q].w[9], was, fabsf(was) * 0x1p-8f);
    case_close(&c);
}

TEST(bad_weights_are_refused_untouched)
{
    InputStats in;
    double     ratio;
    Case       c;
    case_open(&c, SHAPES[0], METHOD_RTN, 4);
    ref_stats(&in, &c.a, c.taps.qkv, T, c.s.C);
    c.scheme[W_V].group = 64;
    T_FAILS(scale(&c, QKV, &in, &ratio), ERR_SHAPE, "groups of 64");
    c.scheme[W_V].group = 0;
    float *w = &c.w.at[W_V].w[3 * 32 + 7], was = *w, norm = c.w.norm[0][1];
    *w = NAN;
    T_FAILS(scale(&c, QKV, &in, &ratio), ERR_RANGE, "NaN at [3,7]");
    *w = was;
    T_OK(c.w.norm[0][1] == norm && case_error(&c, NULL) == 0);
    case_close(&c);
}

TEST(no_memory_leaves_the_layer_as_it_was)
{
    Status s = ERR_MEMORY;
    for (int64_t k = 1; s != OK; k += 7) {
        InputStats in;
        double     ratio;
        Case       c;
        case_open(&c, SHAPES[0], METHOD_CLIP, 4);
        ref_stats(&in, &c.a, c.taps.qkv, T, c.s.C);
        Arena mine = c.a;
        c.a = (Arena){0};
        arena_fail_at(k);
        s = scale(&c, QKV, &in, &ratio);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(c.a.used == 0);
        arena_close(&c.a);
        c.a = mine;
        T_OK(s == OK || case_error(&c, NULL) == 0);
        case_close(&c);
        if (k > 100 && s != OK)
            k += 200;
    }
}
