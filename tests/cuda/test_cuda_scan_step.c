/* test_cuda_scan_step.c - single steps of the selective scan on the GPU: time steps and rates
 * of all magnitudes, NaN and infinities. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda_scan.h"
#include "tests/kernels/ref_ops.h"

/* One time step of a state that starts at 1 and its 2^-25: y = exp(delta A) h with C = 1,
 * B = D = 0. */
TEST(scan_exp_and_softplus_at_all_magnitudes)
{
    static const float DT[] = {-110, -90, -40, -17, -16, -7, -1, -1e-6f, 0, 1e-6f, 1, 5,
                               16, 17, 40, 90, 1e4f, 1e30f};
    static const float A[] = {0, -1e-6f, -0.34f, -0.36f, -1, -16, -87, -1e4f, -1e30f};
    enum { E = sizeof DT / sizeof *DT, N = sizeof A / sizeof *A };
    Backend be;
    T_GPU(&be);
    for (int n = 0; n < N; n++) {
        ScanCase c;
        Both     state;
        T_STATUS_OK(scan_case_open(&c, &be, 1, E, 1));
        T_STATUS_OK(both_zeros(&be, &c.arena, &state, 2, E));
        memcpy(c.bc.host.data, (float[]){0, 1}, 8);
        for (int e = 0; e < E; e++) {
            both_values(&c.dt)[e] = DT[e] * 0.75f;
            both_values(&c.dt_bias)[e] = DT[e] * 0.25f;
            both_values(&c.a)[e] = A[n];
            both_values(&c.d)[e] = 0;
            both_values(&state)[e] = 1;
            both_values(&state)[E + e] = 0x1p-25f;
        }
        T_STATUS_OK(scan_case_send(&c));
        T_STATUS_OK(both_send(&be, &state));
        T_STATUS_OK(scan(&c, 0, 1, &state.gpu));
        T_OK(both_fetch(&be, &c.y));
        for (int e = 0; e < E; e++) {
            double v = (double)DT[e], delta = v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
            double x = delta * (double)A[n], want = exp(x) * (1 + 0x1p-25);
            /* delta within 4 roundings; exp of its product within one */
            double tolerance = want * (4.8e-7 * fabs(x) + 1.2e-7) + 2e-38;
            T_NEAR((double)both_values(&c.y)[e], want, tolerance);
        }
        arena_close(&c.arena);
    }
    backend_close(&be);
}

/* delta = dt is exact there, and so is its product with A: a state that all but vanishes
 * keeps its digits. */
TEST(scan_exp_takes_the_product_unrounded)
{
    enum { E = 300 };
    Backend  be;
    ScanCase c;
    Both     state;
    T_GPU(&be);
    T_STATUS_OK(scan_case_open(&c, &be, 1, E, 1));
    T_STATUS_OK(both_zeros(&be, &c.arena, &state, 2, E));
    memcpy(c.bc.host.data, (float[]){0, 1}, 8);
    for (int e = 0; e < E; e++) {
        both_values(&c.dt)[e] = 31.7f;
        both_values(&c.dt_bias)[e] = 0;
        both_values(&c.a)[e] = -0.3f - 0.008f * (float)e;
        both_values(&state)[e] = 1;
    }
    T_STATUS_OK(scan_case_send(&c));
    T_STATUS_OK(both_send(&be, &state));
    T_STATUS_OK(scan(&c, 0, 1, &state.gpu));
    T_OK(both_fetch(&be, &state));
    for (int e = 0; e < E; e++) {
        double want = exp((double)31.7f * (double)both_values(&c.a)[e]);
        T_NEAR((double)both_values(&state)[e], want, want * 2 * 0x1p-24);
    }
    arena_close(&c.arena);
    backend_close(&be);
}

/* What the sum dt + dt_bias loses is counted: there softplus is exp. */
TEST(scan_step_is_exact_where_it_is_small)
{
    enum { E = 300 };
    Backend  be;
    ScanCase c;
    T_GPU(&be);
    T_STATUS_OK(scan_case_open(&c, &be, 1, E, 1));
    memcpy(c.bc.host.data, (float[]){1, 1}, 8);
    for (int e = 0; e < E; e++) {
        both_values(&c.u)[e] = 1;
        both_values(&c.d)[e] = 0;
        both_values(&c.dt_bias)[e] = -20.1f + 0.1f * (float)e;
        both_values(&c.dt)[e] *= 1e-3f;
    }
    T_STATUS_OK(scan_case_send(&c));
    T_STATUS_OK(scan(&c, 0, 1, NULL));
    T_OK(both_fetch(&be, &c.y));
    for (int e = 0; e < E; e++) {
        double v = (double)both_values(&c.dt)[e] + (double)both_values(&c.dt_bias)[e];
        double want = v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
        /* exp within 2 ulp (4 where a test shakes it), log1p, and the product with u and C */
        T_NEAR((double)both_values(&c.y)[e], want, want * 5 * 0x1p-23);
    }
    arena_close(&c.arena);
    backend_close(&be);
}

/* In u or dt: its channel from there on, in this sequence alone; in B: all channels from
 * there on; in C: its row. */
TEST(scan_shows_nan)
{
    enum { T = 10, E = 19, N = 3 };
    static const int32_t START[] = {0, 7, T};
    Backend be;
    Batch   batch = {2, START, (int64_t[]){0, 1}};
    T_GPU(&be);
    for (int where = 0; where < 6; where++) {
        ScanCase c;
        T_STATUS_OK(scan_case_open(&c, &be, T, E, N));
        float *at[3] = {both_values(&c.u) + 4 * E + 17, both_values(&c.dt) + 4 * E + 17,
                        both_values(&c.bc) + 4 * 2 * N + 2};
        bool in_c = where == 5;
        if (where < 4)
            *at[where / 2] = where % 2 ? INFINITY : NAN;
        else
            at[2][in_c ? 2 : 0] = NAN;
        T_STATUS_OK(scan_case_send(&c));
        T_STATUS_OK(scan_to(&c, &c.y, 0, T, &batch, NULL));
        T_OK(both_fetch(&be, &c.y));
        for (int i = 0; i < T * E; i++) {
            int  t = i / E;
            bool bad = (where >= 4 || i % E == 17) && t >= 4 && t < (in_c ? 5 : 7);
            T_OK(isfinite(both_values(&c.y)[i]) == !bad);
        }
        arena_close(&c.arena);
    }
    backend_close(&be);
}

/* States that fill a block up do not make a NaN of it. */
TEST(scan_shows_infinity_for_a_step)
{
    enum { T = 3, E = 2, N = 3 };
    Backend  be;
    ScanCase c;
    T_GPU(&be);
    T_STATUS_OK(scan_case_open(&c, &be, T, E, N));
    for (int i = 0; i < T * 2 * N; i++)
        both_values(&c.bc)[i] = 1;
    for (int i = 0; i < T * E; i++)
        both_values(&c.u)[i] = i == E ? INFINITY : 1;
    both_values(&c.d)[0] = 1;
    T_STATUS_OK(scan_case_send(&c));
    T_STATUS_OK(scan(&c, 0, T, NULL));
    T_OK(both_fetch(&be, &c.y));
    const float *y = both_values(&c.y);
    T_OK(isfinite(y[0]) && y[E] == INFINITY && isnan(y[2 * E]));
    T_OK(isfinite(y[1]) && isfinite(y[E + 1]) && isfinite(y[2 * E + 1]));
    arena_close(&c.arena);
    backend_close(&be);
}

TEST(scan_stands_still_at_a_step_of_minus_infinity)
{
    enum { E = 5, N = 3 };
    Backend  be;
    ScanCase c;
    Both     state;
    float    before[2 * N * E];
    T_GPU(&be);
    T_STATUS_OK(scan_case_open(&c, &be, 2, E, N));
    T_STATUS_OK(both_zeros(&be, &c.arena, &state, 2 * N, E));
    for (int e = 0; e < E; e++)
        both_values(&c.dt)[E + e] = -INFINITY;
    T_STATUS_OK(scan_case_send(&c));
    T_STATUS_OK(scan(&c, 0, 1, &state.gpu));
    T_OK(both_fetch(&be, &state));
    memcpy(before, state.host.data, sizeof before);
    T_STATUS_OK(scan(&c, 1, 2, &state.gpu));
    T_OK(both_fetch(&be, &state));
    T_OK(before[0] != 0 && memcmp(before, state.host.data, sizeof before) == 0);
    arena_close(&c.arena);
    backend_close(&be);
}
