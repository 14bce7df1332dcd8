/* test_cuda_scan.c - the selective scan, GPU against double: ragged sizes, thousands of steps,
 * several sequences, pieces with a state. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda_scan.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

/* Largest error of rows first .. end, as a share of the largest of its row; where a row is
 * a handful of values, of the largest of all its rows. NaN if any is. */
static double worst_error(ScanCase *c, int64_t first, int64_t end)
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
        ScanCase  c;
        ArenaMark mark = backend_mark(&be);
        T_STATUS_OK(scan_case_open(&c, &be, 36, SIZES[i][0], SIZES[i][1]));
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
    ScanCase c;
    T_STATUS_OK(scan_case_open(&c, be, 4096, 8, 4));
    for (int64_t i = 0; i < c.T * c.E && steady; i++) {
        both_values(&c.u)[i] = 1;
        both_values(&c.dt)[i] = 0;
    }
    for (int64_t i = 0; i < c.T * 2 * c.N && steady; i++)
        both_values(&c.bc)[i] = 1;
    for (int64_t i = 0; i < c.E && steady; i++)
        both_values(&c.dt_bias)[i] = (float)log(1e-5) + (float)i * 0.8f;
    T_STATUS_OK(scan_case_send(&c));
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

/* Cuts in front, between and behind, single steps, pieces without rows; more states than one
 * launch takes. */
static void check_pieces(Backend *be, const int64_t cuts[6], int64_t N)
{
    enum { T = 90, E = 11 };
    ScanCase c;
    Both     state, end;
    T_STATUS_OK(scan_case_open(&c, be, T, E, N));
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
    Backend  be, cpu;
    ScanCase c;
    Both     state;
    T_GPU(&be);
    T_STATUS_OK(backend_open(&cpu, "cpu", 1));
    T_STATUS_OK(scan_case_open(&c, &be, T, E, N));
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
        ScanCase c;
        T_STATUS_OK(scan_case_open(&c, &be, T, E, N));
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

/* The CPU's numbers, NaN and infinities where it has them. */
static bool same_numbers(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(a[i]) != isnan(b[i]) ||
            (!isnan(b[i]) && a[i] != b[i] &&
             !(fabsf(a[i] - b[i]) <= 1e-5f * fabsf(b[i]) + 1e-5f)))
            return false;
    return true;
}

/* Steps that are infinite, overflow with their bias or leave nothing of h; inputs that are
 * infinite or NaN: beside five or eighteen states, the ones that fill sixteen up take no part
 * in it. */
TEST(scan_of_numbers_that_hurt_is_the_cpus)
{
    enum { T = 40, E = 11 };
    for (int64_t N = 5; N <= 18; N += 13) {
        Backend  be, cpu;
        ScanCase c;
        Both     state;
        T_GPU(&be);
        T_STATUS_OK(backend_open(&cpu, "cpu", 1));
        T_STATUS_OK(scan_case_open(&c, &be, T, E, N));
        T_STATUS_OK(both_zeros(&be, &c.arena, &state, 2 * N, E));
        float *u = both_values(&c.u) + 20 * E, *dt = both_values(&c.dt) + 20 * E;
        for (int64_t n = 0; n < 2 * N; n++)  // no infinity less another
            both_values(&c.bc)[20 * 2 * N + n] = 1 + (float)n;
        both_values(&c.d)[0] = 1;
        u[0] = INFINITY;
        u[1] = NAN;
        dt[2] = INFINITY;
        dt[3] = -INFINITY;
        dt[4] = 300;                       // exp of -300 A and less
        dt[5] = 30;
        dt[6] = 3e38f;                     // and its bias: infinity
        dt[7] = -3e38f;
        both_values(&c.dt_bias)[6] = 3e38f;
        both_values(&c.dt_bias)[7] = -3e38f;
        dt[8] = NAN;
        u[9] = 1e36f;
        T_STATUS_OK(scan_case_send(&c));
        T_STATUS_OK(scan(&c, 0, T, &state.gpu));
        T_OK(both_fetch(&be, &c.y) && both_fetch(&be, &state));
        Tensor want = ref_empty(&c.arena, 2 * N, E), y = ref_empty(&c.arena, T, E);
        Scan   s = scan_of(&c, false);
        Batch  one = {1, (int32_t[]){0, T}, (int64_t[]){0}};
        memset(want.data, 0, tensor_bytes(&want));
        T_STATUS_OK(op_scan(&cpu, &y, &c.u.host, &c.dt.host, &c.bc.host, &s, &one, &want));
        T_OK(((float *)y.data)[20 * E] == INFINITY);
        T_OK(same_numbers(both_values(&c.y), y.data, T * E));
        T_OK(same_numbers(both_values(&state), want.data, 2 * N * E));
        arena_close(&c.arena);
        backend_close(&cpu);
        backend_close(&be);
    }
}
