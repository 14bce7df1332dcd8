/* test_cuda_scan.c - the selective scan, GPU against double: ragged sizes, thousands of steps,
 * several sequences, pieces with a state, awkward time steps. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_both.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

typedef struct {
    Arena    arena;
    Backend *be;
    Both     u, dt, bc, y, a, d, dt_bias;
    int64_t  T, E, N;
} Case;

/* As Mamba-1 starts: A = -(1 .. N), delta log-uniform in [1e-3, 0.1] through dt_bias. */
static void fill_rates(Case *c)
{
    uint64_t seed = 9;
    for (int64_t i = 0; i < c->E * c->N; i++)
        both_values(&c->a)[i] = -(float)(1 + i % c->N) * (1 + 0.1f * check_uniform(&seed));
    for (int64_t i = 0; i < c->E; i++) {
        double delta = exp(log(1e-2) + log(10.0) * (double)check_uniform(&seed));
        both_values(&c->dt_bias)[i] = (float)log(expm1(delta));
    }
}

static Status case_send(Case *c)
{
    Both *all[] = {&c->u, &c->dt, &c->bc, &c->a, &c->d, &c->dt_bias};
    for (int i = 0; i < 6; i++)
        TRY(both_send(c->be, all[i]));
    return OK;
}

static Status case_open(Case *c, Backend *be, int64_t T, int64_t E, int64_t N)
{
    *c = (Case){.be = be, .T = T, .E = E, .N = N};
    TRY(both_normal(be, &c->arena, &c->u, T, E, 1));
    TRY(both_normal(be, &c->arena, &c->dt, T, E, 2));
    TRY(both_normal(be, &c->arena, &c->bc, T, 2 * N, 3));
    TRY(both_normal(be, &c->arena, &c->y, T, E, 6));
    TRY(both_normal(be, &c->arena, &c->a, E, N, 7));
    TRY(both_normal(be, &c->arena, &c->d, 1, E, 4));
    TRY(both_normal(be, &c->arena, &c->dt_bias, 1, E, 5));
    fill_rates(c);
    return case_send(c);
}

static Scan scan_of(Case *c, bool gpu)
{
    Tensor d = gpu ? c->d.gpu : c->d.host, bias = gpu ? c->dt_bias.gpu : c->dt_bias.host;
    return (Scan){.n_states = c->N, .a = gpu ? c->a.gpu : c->a.host, .d = ref_vector(&d),
                  .dt_bias = ref_vector(&bias)};
}

/* Rows first .. end as a sequence of their own, or those of a batch. */
static Status scan_to(Case *c, Both *to, int64_t first, int64_t end, const Batch *batch,
                      Tensor *state)
{
    Tensor  u = ref_part(&c->u.gpu, first, end), dt = ref_part(&c->dt.gpu, first, end);
    Tensor  bc = ref_part(&c->bc.gpu, first, end), y = ref_part(&to->gpu, first, end);
    Scan    s = scan_of(c, true);
    int32_t start[2] = {0, (int32_t)(end - first)};
    Batch   one = {1, start, (int64_t[]){0}};
    return op_scan(c->be, &y, &u, &dt, &bc, &s, batch ? batch : &one, state);
}

static Status scan(Case *c, int64_t first, int64_t end, Tensor *state)
{
    return scan_to(c, &c->y, first, end, NULL, state);
}

/* Largest error of rows first .. end, as a share of the largest of its row; where a row is
 * a handful of values, of the largest of all its rows. NaN if any is. */
static double worst_error(Case *c, int64_t first, int64_t end)
{
    int64_t T = end - first, E = c->E;
    Scan    s = scan_of(c, false);
    double *want = arena_alloc(&c->arena, T * E, sizeof *want), all = 0, worst = 0;
    ref_scan(want, both_values(&c->u) + first * E, both_values(&c->dt) + first * E,
             both_values(&c->bc) + first * 2 * c->N, &s, T, E);
    for (int64_t i = 0; i < T * E; i++)
        all = fmax(all, fabs(want[i]));
    for (int64_t t = 0; t < T; t++) {
        double size = 0, error;
        for (int64_t e = 0; e < E; e++)
            size = fmax(size, fabs(want[t * E + e]));
        error = ref_worst(both_values(&c->y) + (first + t) * E, want + t * E, E);
        error /= E < 64 ? all : size;
        worst = error > worst || isnan(error) ? error : worst;
    }
    return worst;
}

/* Channels and states on both sides of 8 and 16, rows of 16; more states add up in turns. */
TEST(scan_agrees_with_double)
{
    static const int32_t START[] = {0, 2, 2, 3, 19, 36};  // one is empty, one a row
    static const int64_t SIZES[][2] = {{1, 16}, {3, 1}, {7, 3}, {8, 16}, {9, 15}, {65, 16},
                                       {9, 17}, {12, 100}};
    Backend be;
    Batch   batch = {5, START, (int64_t[]){0, 1, 2, 3, 4}};
    T_GPU(&be);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        Case      c;
        ArenaMark mark = backend_mark(&be);
        T_STATUS_OK(case_open(&c, &be, 36, SIZES[i][0], SIZES[i][1]));
        T_STATUS_OK(scan_to(&c, &c.y, 0, 36, &batch, NULL));
        T_OK(both_fetch(&be, &c.y));
        for (int q = 0; q < 5; q++)
            T_NEAR(worst_error(&c, START[q], START[q + 1]), 0, 1e-6);
        arena_close(&c.arena);
        backend_rewind(&be, mark);
    }
    backend_close(&be);
}

/* 4096 steps, each a chance to round h. steady: an input through slow states, where a float h
 * stops growing once its share is below half an ulp. */
static void check_long(Backend *be, bool steady)
{
    Case c;
    T_STATUS_OK(case_open(&c, be, 4096, 8, 4));
    for (int64_t i = 0; i < c.T * c.E && steady; i++) {
        both_values(&c.u)[i] = 1;
        both_values(&c.dt)[i] = 0;
    }
    for (int64_t i = 0; i < c.T * 2 * c.N && steady; i++)
        both_values(&c.bc)[i] = 1;
    for (int64_t i = 0; i < c.E && steady; i++)
        both_values(&c.dt_bias)[i] = (float)log(1e-5) + (float)i * 0.8f;
    T_STATUS_OK(case_send(&c));
    T_STATUS_OK(scan(&c, 0, 4096, NULL));
    T_OK(both_fetch(be, &c.y));
    T_NEAR(worst_error(&c, 0, 4096), 0, 1e-6);
    arena_close(&c.arena);
}

TEST(scan_of_4096_steps_keeps_its_digits)
{
    Backend be;
    T_GPU(&be);
    check_long(&be, false);
    check_long(&be, true);
    backend_close(&be);
}

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
        Case c;
        Both state;
        T_STATUS_OK(case_open(&c, &be, 1, E, 1));
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
        T_STATUS_OK(case_send(&c));
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
    Backend be;
    Case    c;
    Both    state;
    T_GPU(&be);
    T_STATUS_OK(case_open(&c, &be, 1, E, 1));
    T_STATUS_OK(both_zeros(&be, &c.arena, &state, 2, E));
    memcpy(c.bc.host.data, (float[]){0, 1}, 8);
    for (int e = 0; e < E; e++) {
        both_values(&c.dt)[e] = 31.7f;
        both_values(&c.dt_bias)[e] = 0;
        both_values(&c.a)[e] = -0.3f - 0.008f * (float)e;
        both_values(&state)[e] = 1;
    }
    T_STATUS_OK(case_send(&c));
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
    Backend be;
    Case    c;
    T_GPU(&be);
    T_STATUS_OK(case_open(&c, &be, 1, E, 1));
    memcpy(c.bc.host.data, (float[]){1, 1}, 8);
    for (int e = 0; e < E; e++) {
        both_values(&c.u)[e] = 1;
        both_values(&c.d)[e] = 0;
        both_values(&c.dt_bias)[e] = -20.1f + 0.1f * (float)e;
        both_values(&c.dt)[e] *= 1e-3f;
    }
    T_STATUS_OK(case_send(&c));
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

/* Cuts in front, between and behind, single steps, pieces without rows; more states than one
 * launch takes. */
static void check_pieces(Backend *be, const int64_t cuts[6], int64_t N)
{
    enum { T = 90, E = 11 };
    Case c;
    Both state, end;
    T_STATUS_OK(case_open(&c, be, T, E, N));
    T_STATUS_OK(both_zeros(be, &c.arena, &state, 2 * N, E));
    T_STATUS_OK(both_zeros(be, &c.arena, &end, 2 * N, E));
    T_STATUS_OK(scan(&c, 0, T, &end.gpu));
    T_STATUS_OK(scan(&c, 0, T, NULL));
    T_OK(both_fetch(be, &c.y) && both_fetch(be, &end));
    float *whole = arena_alloc(&c.arena, T * E, sizeof *whole);
    memcpy(whole, c.y.host.data, tensor_bytes(&c.y.host));
    for (int k = 0; k < 5; k++)
        T_STATUS_OK(scan(&c, cuts[k], cuts[k + 1], &state.gpu));
    T_OK(both_fetch(be, &c.y) && both_fetch(be, &state));
    T_OK(memcmp(whole, c.y.host.data, tensor_bytes(&c.y.host)) == 0);
    T_OK(memcmp(state.host.data, end.host.data, tensor_bytes(&end.host)) == 0);
    arena_close(&c.arena);
}

TEST(scan_in_pieces_gives_the_same_bits)
{
    static const int64_t CUTS[][6] = {{0, 1, 2, 3, 4, 90}, {0, 45, 45, 46, 89, 90},
                                      {0, 0, 7, 39, 71, 90}};
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 3; i++) {
        check_pieces(&be, CUTS[i], 5);
        check_pieces(&be, CUTS[i], 18);
    }
    backend_close(&be);
}

/* h of CPUs with fused multiply-adds; y differs in the order of its sum over states. */
TEST(scan_gives_the_states_of_the_cpu)
{
    enum { T = 50, E = 13, N = 16 };
    Backend be, cpu;
    Case    c;
    Both    state;
    T_GPU(&be);
    T_STATUS_OK(backend_open(&cpu, "cpu", 1));
    T_STATUS_OK(case_open(&c, &be, T, E, N));
    T_STATUS_OK(both_zeros(&be, &c.arena, &state, 2 * N, E));
    T_STATUS_OK(scan(&c, 0, T, &state.gpu));
    Tensor want = ref_empty(&c.arena, 2 * N, E);
    Scan   s = scan_of(&c, false);
    Batch  one = {1, (int32_t[]){0, T}, (int64_t[]){0}};
    memset(want.data, 0, tensor_bytes(&want));
    T_STATUS_OK(op_scan(&cpu, &c.y.host, &c.u.host, &c.dt.host, &c.bc.host, &s, &one, &want));
    T_OK(both_fetch(&be, &state));
    T_OK(cpu_isa() == CPU_PLAIN ||
         memcmp(state.host.data, want.data, tensor_bytes(&want)) == 0);
    arena_close(&c.arena);
    backend_close(&cpu);
    backend_close(&be);
}

/* A sequence alone or in a batch; y in place of u. */
TEST(scan_bits_depend_on_the_sequence_alone)
{
    enum { T = 44, E = 21 };
    static const int32_t START[] = {0, 20, T};
    Backend be;
    Batch   batch = {2, START, (int64_t[]){0, 1}};
    T_GPU(&be);
    for (int64_t N = 16; N <= 20; N += 4) {
        Case c;
        T_STATUS_OK(case_open(&c, &be, T, E, N));
        T_STATUS_OK(scan_to(&c, &c.y, 0, T, &batch, NULL));
        T_OK(both_fetch(&be, &c.y));
        float *first = arena_alloc(&c.arena, T * E, sizeof *first);
        memcpy(first, c.y.host.data, tensor_bytes(&c.y.host));
        T_STATUS_OK(scan(&c, 20, T, NULL));
        T_OK(both_fetch(&be, &c.y));
        T_OK(memcmp(first, c.y.host.data, tensor_bytes(&c.y.host)) == 0);
        T_STATUS_OK(scan_to(&c, &c.u, 0, T, &batch, NULL));
        T_OK(both_fetch(&be, &c.u));
        T_OK(memcmp(first, c.u.host.data, tensor_bytes(&c.u.host)) == 0);
        arena_close(&c.arena);
    }
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
        Case c;
        T_STATUS_OK(case_open(&c, &be, T, E, N));
        float *at[3] = {both_values(&c.u) + 4 * E + 17, both_values(&c.dt) + 4 * E + 17,
                        both_values(&c.bc) + 4 * 2 * N + 2};
        bool in_c = where == 5;
        if (where < 4)
            *at[where / 2] = where % 2 ? INFINITY : NAN;
        else
            at[2][in_c ? 2 : 0] = NAN;
        T_STATUS_OK(case_send(&c));
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

TEST(scan_stands_still_at_a_step_of_minus_infinity)
{
    enum { E = 5, N = 3 };
    Backend be;
    Case    c;
    Both    state;
    float   before[2 * N * E];
    T_GPU(&be);
    T_STATUS_OK(case_open(&c, &be, 2, E, N));
    T_STATUS_OK(both_zeros(&be, &c.arena, &state, 2 * N, E));
    for (int e = 0; e < E; e++)
        both_values(&c.dt)[E + e] = -INFINITY;
    T_STATUS_OK(case_send(&c));
    T_STATUS_OK(scan(&c, 0, 1, &state.gpu));
    T_OK(both_fetch(&be, &state));
    memcpy(before, state.host.data, sizeof before);
    T_STATUS_OK(scan(&c, 1, 2, &state.gpu));
    T_OK(both_fetch(&be, &state));
    T_OK(before[0] != 0 && memcmp(before, state.host.data, sizeof before) == 0);
    arena_close(&c.arena);
    backend_close(&be);
}
