/* test_smooth.c - ranges move from inputs into weights; the layer stays the same. */
#include "quant/methods/smooth.h"

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/check.h"
#include "tests/quant/ref_layer.h"
#include "tests/quant/ref_stats.h"

enum { T = 9 };

static const RefShape SHAPES[] = {{24, 37, 4, 1, 6, 2, true, false},
                                  {40, 24, 3, 2, 6, 6, false, true}};

typedef struct {
    Arena        a;
    RefShape     s;
    LayerWeights w;
    double      *x, *y, *got;  // [T,C]
    RefTaps      taps;
} Case;

static void case_open(Case *c, RefShape s, uint64_t seed)
{
    RefLayer plain;
    *c = (Case){.s = s};
    ref_layer_random(&c->w, &c->a, &s, seed);
    ref_layer_widen(&plain, &c->a, &c->w);
    c->x = arena_alloc(&c->a, T * s.C, sizeof *c->x);
    c->y = arena_alloc(&c->a, T * s.C, sizeof *c->x);
    c->got = arena_alloc(&c->a, T * s.C, sizeof *c->x);
    CHECK(c->x && c->y && c->got);
    for (int64_t i = 0; i < T * s.C; i++)
        c->x[i] = (i % s.C == 5 ? 40 : 1) * (double)check_normal(&seed);
    ref_layer_run(c->y, &c->taps, &c->a, &s, &plain, c->x, T);
}

/* The layer's change of function, and its new inputs. */
static double case_error(Case *c, RefTaps *taps)
{
    RefLayer now;
    ref_layer_widen(&now, &c->a, &c->w);
    ref_layer_run(c->got, taps, &c->a, &c->s, &now, c->x, T);
    return ref_layer_error(c->got, c->y, T * c->s.C);
}

TEST(the_function_stays_and_the_inputs_are_the_new_ones)
{
    for (int i = 0; i < 4; i++) {
        Case       c;
        InputStats in, want;
        RefTaps    now;
        case_open(&c, SHAPES[i % 2], (uint64_t)i + 1);
        ref_stats(&in, &c.a, i / 2 ? c.taps.mlp : c.taps.qkv, T, c.s.C);
        size_t used = c.a.used;
        T_STATUS_OK(smooth_norm(&c.w, i / 2, &in, 0.6, &c.a));
        T_OK(c.a.used == used);
        /* norm and columns rounded once each, in sums of up to 48 through three products */
        T_OK(case_error(&c, &now) <= 2e-6);
        ref_stats(&want, &c.a, i / 2 ? now.mlp : now.qkv, T, c.s.C);
        T_OK(ref_stats_error(&in, &want) <= 2e-6);
        arena_close(&c.a);
    }
}

TEST(scales_are_the_formula)
{
    enum { C = 3 };
    float        q[C] = {2, -0.5f, 0}, k[C] = {1, 0.25f, 0}, v[C] = {-4, 0, 0};
    float        norm[C] = {1, 3, 1}, absmax[C] = {9, 100, 0};
    double       sums[C] = {1, 1, 0};
    double       sum2[C] = {1, 1, 0};
    InputStats   in = {.k = C, .n_rows = 1, .sum_abs = sums, .sum2 = sum2, .absmax = absmax};
    LayerWeights w = {0};
    Arena        a = {0};
    w.at[W_Q] = (LayerMatrix){.n = 1, .k = C, .w = q};
    w.at[W_K] = (LayerMatrix){.n = 1, .k = C, .w = k};
    w.at[W_V] = (LayerMatrix){.n = 1, .k = C, .w = v};
    w.norm[0] = norm;
    T_STATUS_OK(smooth_norm(&w, 0, &in, 0.5, &a));
    /* sqrt(9 / 4) = 1.5, sqrt(100 / 0.5) = 14.14; never an input: as it was */
    T_NEAR(q[0], 3, 3 * 0x1p-8);
    T_NEAR(k[1], 0.25 * sqrt(200), 4 * 0x1p-8);
    T_NEAR(norm[0], 1 / 1.5, 0x1p-8);
    T_NEAR(norm[2], 1, 0);
    T_NEAR(absmax[1], 100 / sqrt(200), 7 * 0x1p-8);
    T_NEAR(sum2[1], 1 / 200.0, 0x1p-7 / 200);
    /* what a checkpoint of bf16 stores is the norm itself */
    for (int i = 0; i < C; i++)
        T_NEAR(norm[i], bf16_round(norm[i]), 0);
    T_NEAR((double)q[0] * (double)norm[0], 2, 2 * 0x1p-22);
    arena_close(&a);
}

TEST(outliers_of_inputs_shrink)
{
    Case       c;
    InputStats in;
    float      before = 0, after = 0;
    case_open(&c, SHAPES[1], 3);
    ref_stats(&in, &c.a, c.taps.qkv, T, c.s.C);
    for (int64_t k = 0; k < c.s.C; k++)
        before = fmaxf(before, in.absmax[k]);
    T_STATUS_OK(smooth_norm(&c.w, 0, &in, 0.5, &c.a));
    for (int64_t k = 0; k < c.s.C; k++)
        after = fmaxf(after, in.absmax[k]);
    T_OK(after < before / 3);
    arena_close(&c.a);
}

TEST(no_memory_leaves_the_layer_as_it_was)
{
    Case       c;
    InputStats in;
    Arena      none = {0};
    case_open(&c, SHAPES[0], 3);
    ref_stats(&in, &c.a, c.taps.qkv, T, c.s.C);
    arena_fail_at(1);
    Status s = smooth_norm(&c.w, 0, &in, 0.5, &none);
    arena_fail_at(0);
    T_OK(s == ERR_MEMORY && case_error(&c, NULL) == 0);
    arena_close(&c.a);
}
