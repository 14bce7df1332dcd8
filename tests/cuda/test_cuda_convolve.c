/* test_cuda_convolve.c - the causal convolution, GPU against double: ragged sizes, several
 * sequences, pieces with a state. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_both.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

typedef struct {
    Arena    arena;
    Backend *be;
    Both     x, y, w, b;
    int64_t  T, E, J;
    bool     bias;
} Case;

static Status case_open(Case *c, Backend *be, int64_t T, int64_t E, int64_t J)
{
    *c = (Case){.be = be, .T = T, .E = E, .J = J, .bias = true};
    TRY(both_normal(be, &c->arena, &c->x, T, E, 1));
    TRY(both_normal(be, &c->arena, &c->y, T, E, 4));
    TRY(both_normal(be, &c->arena, &c->w, E, J, 2));
    TRY(both_normal(be, &c->arena, &c->b, 1, E, 3));
    TRY(both_send(be, &c->x));
    TRY(both_send(be, &c->w));
    return both_send(be, &c->b);
}

/* Rows first .. end as a sequence of their own, or those of a batch. */
static Status convolve(Case *c, int64_t first, int64_t end, const Batch *batch,
                       Tensor *state)
{
    Tensor  x = ref_part(&c->x.gpu, first, end), y = ref_part(&c->y.gpu, first, end);
    Tensor  b = ref_vector(&c->b.gpu);
    int32_t start[2] = {0, (int32_t)(end - first)};
    Batch   one = {1, start, (int64_t[]){0}};
    if (!c->bias)
        b.data = NULL;
    return op_convolve(c->be, &y, &x, &c->w.gpu, &b, batch ? batch : &one, state);
}

/* A chain of J multiply-adds and SiLU: at most (J + 1) 2^-24 of the sum of magnitudes, which
 * SiLU enlarges by at most 1.1, and 6 roundings of its own. */
static double tolerance(Case *c, const float *x, int64_t t, int64_t e, double want)
{
    const float *w = both_values(&c->w) + e * c->J;
    double       size = c->bias ? fabs((double)both_values(&c->b)[e]) : 0;
    for (int64_t j = 0; j < c->J; j++) {
        int64_t from = t - (c->J - 1) + j;
        size += from < 0 ? 0 : fabs((double)w[j] * (double)x[from * c->E + e]);
    }
    return ((double)(c->J + 1) * 1.1 * size + 6 * fabs(want)) * 0x1p-24 + 1e-38;
}

static void check_sequence(Case *c, int64_t first, int64_t end)
{
    const float *x = both_values(&c->x) + first * c->E, *y = both_values(&c->y) + first * c->E;
    int64_t      T = end - first;
    double      *want = arena_alloc(&c->arena, T * c->E, sizeof *want);
    const float *b = c->bias ? both_values(&c->b) : NULL;
    ref_convolve(want, x, both_values(&c->w), b, T, c->E, c->J);
    for (int64_t i = 0; i < T * c->E; i++)
        T_NEAR((double)y[i], want[i], tolerance(c, x, i / c->E, i % c->E, want[i]));
}

TEST(convolve_agrees_with_double)
{
    static const int32_t START[] = {0, 2, 2, 3, 20, 36, 37};  // one is empty, two a row
    static const int64_t WIDTHS[] = {1, 3, 31, 255, 257};
    Backend be;
    Batch   batch = {6, START, (int64_t[]){0, 1, 2, 3, 4, 5}};
    T_GPU(&be);
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (int64_t J = 1; J <= 5; J++) {
            Case      c;
            ArenaMark mark = backend_mark(&be);
            T_STATUS_OK(case_open(&c, &be, 37, WIDTHS[i], J));
            c.bias = J % 2 == (int64_t)i % 2;
            T_STATUS_OK(convolve(&c, 0, 37, &batch, NULL));
            T_OK(both_fetch(&be, &c.y));
            for (int q = 0; q < 6; q++)
                check_sequence(&c, START[q], START[q + 1]);
            arena_close(&c.arena);
            backend_rewind(&be, mark);
        }
    backend_close(&be);
}

/* Cuts in front, between and behind, pieces shorter than the state, one without rows. */
TEST(convolve_in_pieces_gives_the_same_bits)
{
    static const int64_t CUTS[][6] = {{0, 1, 2, 3, 4, 40}, {0, 20, 20, 21, 39, 40},
                                      {0, 40, 40, 40, 40, 40}, {0, 0, 3, 9, 11, 40}};
    enum { T = 40, E = 35 };
    Backend be;
    T_GPU(&be);
    for (int64_t J = 1; J <= 5; J++)
        for (int i = 0; i < 4; i++) {
            Case      c;
            Both      state;
            ArenaMark mark = backend_mark(&be);
            T_STATUS_OK(case_open(&c, &be, T, E, J));
            T_STATUS_OK(both_zeros(&be, &c.arena, &state, J - 1, E));
            T_STATUS_OK(convolve(&c, 0, T, NULL, NULL));
            T_OK(both_fetch(&be, &c.y));
            float *whole = arena_alloc(&c.arena, T * E, sizeof *whole);
            memcpy(whole, c.y.host.data, tensor_bytes(&c.y.host));
            for (int k = 0; k < 5; k++)
                T_STATUS_OK(convolve(&c, CUTS[i][k], CUTS[i][k + 1], NULL, &state.gpu));
            T_OK(both_fetch(&be, &c.y) && both_fetch(&be, &state));
            T_OK(memcmp(whole, c.y.host.data, tensor_bytes(&c.y.host)) == 0);
            T_OK(memcmp(state.host.data, both_values(&c.x) + (T - (J - 1)) * E,
                        tensor_bytes(&state.host)) == 0);
            arena_close(&c.arena);
            backend_rewind(&be, mark);
        }
    backend_close(&be);
}

TEST(convolve_shows_nan_for_as_long_as_it_looks_back)
{
    enum { T = 26, E = 19, J = 4 };
    Backend be;
    T_GPU(&be);
    for (int infinite = 0; infinite < 2; infinite++) {
        Case c;
        Both state;
        T_STATUS_OK(case_open(&c, &be, T, E, J));
        T_STATUS_OK(both_zeros(&be, &c.arena, &state, J - 1, E));
        both_values(&c.x)[14 * E + 17] = infinite ? INFINITY : NAN;
        T_STATUS_OK(both_send(&be, &c.x));
        T_STATUS_OK(convolve(&c, 0, 15, NULL, &state.gpu));
        T_STATUS_OK(convolve(&c, 15, T, NULL, &state.gpu));
        T_OK(both_fetch(&be, &c.y));
        for (int i = 0; i < T * E; i++) {
            int t = i / E;
            T_OK(isfinite(both_values(&c.y)[i]) == !(i % E == 17 && t >= 14 && t < 14 + J));
        }
        arena_close(&c.arena);
    }
    backend_close(&be);
}
