/* test_scan.c - the selective scan against double: ragged sizes, thousands of steps, several
 * sequences, pieces with a state, awkward time steps. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

typedef struct {
    Arena   arena;
    Backend be;
    Tensor  u, dt, bc, y;
    Scan    s;
    int64_t T, E, N;
} Case;

/* As Mamba-1 starts: A = -(1 .. N), delta log-uniform in [1e-3, 0.1] through dt_bias. */
static Status case_open(Case *c, int64_t T, int64_t E, int64_t N, int threads)
{
    uint64_t seed = 9;
    *c = (Case){.T = T, .E = E, .N = N, .s = {.n_states = N}};
    c->u = ref_normal(&c->arena, T, E, 1);
    c->dt = ref_normal(&c->arena, T, E, 2);
    c->bc = ref_normal(&c->arena, T, 2 * N, 3);
    c->y = ref_empty(&c->arena, T, E);
    c->s.a = ref_empty(&c->arena, E, N);
    c->s.d = tensor_1d(DTYPE_F32, ref_normal(&c->arena, 1, E, 4).data, E);
    c->s.dt_bias = tensor_1d(DTYPE_F32, ref_normal(&c->arena, 1, E, 5).data, E);
    for (int64_t i = 0; i < E * N; i++)
        ((float *)c->s.a.data)[i] = -(float)(1 + i % N) * (1 + 0.1f * check_uniform(&seed));
    for (int64_t i = 0; i < E; i++) {
        double delta = exp(log(1e-2) + log(10.0) * (double)check_uniform(&seed));
        ((float *)c->s.dt_bias.data)[i] = (float)log(expm1(delta));
    }
    return backend_open(&c->be, "cpu", threads);
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

/* Rows first .. end of the case as a sequence of their own. */
static Status scan(Case *c, int64_t first, int64_t end, Tensor *state)
{
    Tensor  u = ref_part(&c->u, first, end), dt = ref_part(&c->dt, first, end);
    Tensor  bc = ref_part(&c->bc, first, end), y = ref_part(&c->y, first, end);
    int32_t start[2] = {0, (int32_t)(end - first)};
    Batch   batch = {1, start, (int64_t[]){0}};
    return op_scan(&c->be, &y, &u, &dt, &bc, &c->s, &batch, state);
}

/* Largest error of rows first .. end, as a share of the largest of its row; where a row is
 * a handful of values, of the largest of all its rows. NaN if any is. */
static double worst_error(Case *c, int64_t first, int64_t end)
{
    int64_t T = end - first, E = c->E;
    double *want = arena_alloc(&c->arena, T * E, sizeof *want), all = 0, worst = 0;
    ref_scan(want, (float *)c->u.data + first * E, (float *)c->dt.data + first * E,
             (float *)c->bc.data + first * 2 * c->N, &c->s, T, E);
    for (int64_t i = 0; i < T * E; i++)
        all = fmax(all, fabs(want[i]));
    for (int64_t t = 0; t < T; t++) {
        double size = 0, error;
        for (int64_t e = 0; e < E; e++)
            size = fmax(size, fabs(want[t * E + e]));
        error = ref_worst((float *)c->y.data + (first + t) * E, want + t * E, E);
        error /= E < 64 ? all : size;
        worst = error > worst || isnan(error) ? error : worst;
    }
    return worst;
}

TEST(scan_agrees_with_double)
{
    static const int32_t START[] = {0, 2, 2, 3, 20};  // one is empty, one a row
    static const int64_t SIZES[][2] = {{1, 16}, {3, 1}, {17, 3}, {63, 16}, {64, 16}, {65, 16},
                                       {100, 17}, {127, 5}, {5120, 16}, {12, 100}};
    REF_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        Case  c;
        Batch batch = {4, START, (int64_t[]){0, 1, 2, 3}};
        T_STATUS_OK(case_open(&c, 20, SIZES[i][0], SIZES[i][1], 2));
        T_STATUS_OK(op_scan(&c.be, &c.y, &c.u, &c.dt, &c.bc, &c.s, &batch, NULL));
        for (int q = 0; q < 4; q++)
            T_NEAR(worst_error(&c, START[q], START[q + 1]), 0, 1e-6);
        T_OK(ref_guards_hold(c.y.data, 20 * c.E));
        case_close(&c);
    }
}

/* 4096 steps, each a chance to round h. */
TEST(scan_of_4096_steps_keeps_its_digits)
{
    REF_EACH_ISA(isa)
    {
        Case c;
        T_STATUS_OK(case_open(&c, 4096, 70, 16, 2));
        T_STATUS_OK(scan(&c, 0, 4096, NULL));
        T_NEAR(worst_error(&c, 0, 4096), 0, 1e-6);
        case_close(&c);
    }
}

/* A steady input through slow states: a float h stops growing where its share is below half
 * an ulp, and rounds to the same side each time. */
TEST(scan_of_slow_states_does_not_stall)
{
    REF_EACH_ISA(isa)
    {
        Case c;
        T_STATUS_OK(case_open(&c, 4096, 64, 4, 2));
        for (int64_t i = 0; i < c.T * c.E; i++) {
            ((float *)c.u.data)[i] = 1;
            ((float *)c.dt.data)[i] = 0;
        }
        for (int64_t i = 0; i < c.T * 2 * c.N; i++)
            ((float *)c.bc.data)[i] = 1;
        for (int64_t i = 0; i < c.E; i++)
            ((float *)c.s.dt_bias.data)[i] = (float)log(1e-5) + (float)i * 0.1f;
        T_STATUS_OK(scan(&c, 0, 4096, NULL));
        T_NEAR(worst_error(&c, 0, 4096), 0, 1e-6);
        case_close(&c);
    }
}

/* One time step of a state that starts at 1 and its 2^-25: y = exp(delta A) h with C = 1,
 * B = D = 0. */
TEST(scan_exp_and_softplus_at_all_magnitudes)
{
    static const float DT[] = {-110, -90, -40, -17, -16, -7, -1, -1e-6f, 0, 1e-6f, 1, 5,
                               16, 17, 40, 90, 1e4f, 1e30f};
    static const float A[] = {0, -1e-6f, -0.34f, -0.36f, -1, -16, -87, -1e4f, -1e30f};
    enum { E = sizeof DT / sizeof *DT, N = sizeof A / sizeof *A };
    REF_EACH_ISA(isa)
    for (int n = 0; n < N; n++) {
        Case c;
        T_STATUS_OK(case_open(&c, 1, E, 1, 1));
        Tensor state = ref_empty(&c.arena, 2, E);
        memset(state.data, 0, tensor_bytes(&state));
        memcpy(c.bc.data, (float[]){0, 1}, 8);
        for (int e = 0; e < E; e++) {
            ((float *)c.dt.data)[e] = DT[e] * 0.75f;
            ((float *)c.s.dt_bias.data)[e] = DT[e] * 0.25f;
            ((float *)c.s.a.data)[e] = A[n];
            ((float *)c.s.d.data)[e] = 0;
            ((float *)state.data)[e] = 1;
            ((float *)state.data)[E + e] = 0x1p-25f;
        }
        T_STATUS_OK(scan(&c, 0, 1, &state));
        for (int e = 0; e < E; e++) {
            double v = (double)DT[e], delta = v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
            double x = delta * (double)A[n], want = exp(x) * (1 + 0x1p-25);
            /* delta within 3 roundings; x rounds once more where nothing is fused */
            T_NEAR((double)((float *)c.y.data)[e], want,
                   want * (3e-7 * fabs(x) + 1.2e-7) + 2e-38);
        }
        case_close(&c);
    }
}

/* delta = dt is exact there, and so is its product with A where a multiply-add is fused: a
 * state that all but vanishes keeps its digits. */
TEST(scan_exp_takes_the_product_unrounded)
{
    enum { E = 1000 };
    REF_EACH_ISA(isa)
    {
        Case c;
        T_STATUS_OK(case_open(&c, 1, E, 1, 1));
        Tensor state = ref_empty(&c.arena, 2, E);
        memset(state.data, 0, tensor_bytes(&state));
        memcpy(c.bc.data, (float[]){0, 1}, 8);
        for (int e = 0; e < E; e++) {
            ((float *)c.dt.data)[e] = 31.7f;
            ((float *)c.s.dt_bias.data)[e] = 0;
            ((float *)c.s.a.data)[e] = -0.3f - 0.0024f * (float)e;
            ((float *)state.data)[e] = 1;
        }
        T_STATUS_OK(scan(&c, 0, 1, &state));
        for (int e = 0; e < E; e++) {
            double x = (double)31.7f * (double)((float *)c.s.a.data)[e], want = exp(x);
            double rounding = isa == CPU_PLAIN ? 2 + fabs(x) : 2;
            T_NEAR((double)((float *)state.data)[e], want, want * rounding * 0x1p-24);
        }
        case_close(&c);
    }
}

/* What the sum dt + dt_bias loses is counted: there softplus is exp. */
TEST(scan_step_is_exact_where_it_is_small)
{
    REF_EACH_ISA(isa)
    {
        enum { E = 1000 };
        Case c;
        T_STATUS_OK(case_open(&c, 1, E, 1, 1));
        memcpy(c.bc.data, (float[]){1, 1}, 8);
        for (int e = 0; e < E; e++) {
            ((float *)c.u.data)[e] = 1;
            ((float *)c.s.d.data)[e] = 0;
            ((float *)c.s.dt_bias.data)[e] = -20.1f + 0.03f * (float)e;
            ((float *)c.dt.data)[e] *= 1e-3f;
        }
        T_STATUS_OK(scan(&c, 0, 1, NULL));
        for (int e = 0; e < E; e++) {
            double v = (double)((float *)c.dt.data)[e] + (double)((float *)c.s.dt_bias.data)[e];
            double want = v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
            T_NEAR((double)((float *)c.y.data)[e], want, want * 3 * 0x1p-23);
        }
        case_close(&c);
    }
}

/* Cuts in front, between and behind, single steps, pieces without rows. */
TEST(scan_in_pieces_gives_the_same_bits)
{
    static const int64_t CUTS[][6] = {{0, 1, 2, 3, 4, 300}, {0, 150, 150, 151, 299, 300},
                                      {0, 0, 7, 130, 290, 300}};
    REF_EACH_ISA(isa)
    for (int i = 0; i < 3; i++) {
        Case   c;
        T_STATUS_OK(case_open(&c, 300, 90, 5, 2));
        Tensor whole = ref_empty(&c.arena, 300, 90), state = ref_empty(&c.arena, 10, 90);
        Tensor end = ref_empty(&c.arena, 10, 90);
        memset(state.data, 0, tensor_bytes(&state));
        memset(end.data, 0, tensor_bytes(&end));
        T_STATUS_OK(scan(&c, 0, 300, &end));
        T_STATUS_OK(scan(&c, 0, 300, NULL));
        memcpy(whole.data, c.y.data, tensor_bytes(&c.y));
        memset(c.y.data, 0xff, tensor_bytes(&c.y));
        for (int k = 0; k < 5; k++)
            T_STATUS_OK(scan(&c, CUTS[i][k], CUTS[i][k + 1], &state));
        T_OK(memcmp(whole.data, c.y.data, tensor_bytes(&c.y)) == 0);
        T_OK(memcmp(state.data, end.data, tensor_bytes(&end)) == 0);
        T_OK(ref_guards_hold(state.data, 10 * 90));
        case_close(&c);
    }
}

/* With other threads; a sequence alone or in a batch; avx2 and avx512; y in place of u. */
TEST(scan_bits_depend_on_the_sequence_alone)
{
    enum { T = 64, E = 150 };
    Arena  arena = {0};
    Tensor first = ref_empty(&arena, T, E);
    CpuIsa of = CPU_PLAIN;   // whose result `first` is
    bool   started = false;
    REF_EACH_ISA(isa)
    for (int threads = 1; threads <= 3; threads++) {
        Case    c;
        int32_t start[3] = {0, 30, T};
        Batch   batch = {2, start, (int64_t[]){0, 1}};
        T_STATUS_OK(case_open(&c, T, E, 16, threads));
        T_STATUS_OK(op_scan(&c.be, &c.y, &c.u, &c.dt, &c.bc, &c.s, &batch, NULL));
        if (!started || (of == CPU_PLAIN && isa != CPU_PLAIN))
            memcpy(first.data, c.y.data, tensor_bytes(&first));
        started = true;
        of = isa;
        T_OK(memcmp(first.data, c.y.data, tensor_bytes(&first)) == 0);
        T_STATUS_OK(scan(&c, 30, T, NULL));
        T_OK(memcmp(first.data, c.y.data, tensor_bytes(&first)) == 0);
        T_STATUS_OK(op_scan(&c.be, &c.u, &c.u, &c.dt, &c.bc, &c.s, &batch, NULL));
        T_OK(memcmp(first.data, c.u.data, tensor_bytes(&first)) == 0);
        case_close(&c);
    }
    arena_close(&arena);
}

/* In u or dt: its channel from there on, in this sequence alone; in B: all channels from
 * there on; in C: its row. */
TEST(scan_shows_nan)
{
    enum { T = 10, E = 19, N = 3 };
    REF_EACH_ISA(isa)
    for (int where = 0; where < 6; where++) {
        Case    c;
        int32_t start[3] = {0, 7, T};
        Batch   batch = {2, start, (int64_t[]){0, 1}};
        T_STATUS_OK(case_open(&c, T, E, N, 1));
        float *at[3] = {(float *)c.u.data + 4 * E + 17, (float *)c.dt.data + 4 * E + 17,
                        (float *)c.bc.data + 4 * 2 * N + 2};
        bool in_c = where == 5;
        if (where < 4)
            *at[where / 2] = where % 2 ? INFINITY : NAN;
        else
            at[2][in_c ? 2 : 0] = NAN;
        T_STATUS_OK(op_scan(&c.be, &c.y, &c.u, &c.dt, &c.bc, &c.s, &batch, NULL));
        for (int i = 0; i < T * E; i++) {
            int  t = i / E;
            bool bad = (where >= 4 || i % E == 17) && t >= 4 && t < (in_c ? 5 : 7);
            T_OK(isfinite(((float *)c.y.data)[i]) == !bad);
        }
        case_close(&c);
    }
}

TEST(scan_stands_still_at_a_step_of_minus_infinity)
{
    enum { E = 5 };
    REF_EACH_ISA(isa)
    {
        Case   c;
        T_STATUS_OK(case_open(&c, 2, E, 3, 1));
        Tensor state = ref_empty(&c.arena, 6, E), before = ref_empty(&c.arena, 6, E);
        memset(state.data, 0, tensor_bytes(&state));
        T_STATUS_OK(scan(&c, 0, 1, &state));
        memcpy(before.data, state.data, tensor_bytes(&state));
        for (int e = 0; e < E; e++)
            ((float *)c.dt.data)[E + e] = -INFINITY;
        T_STATUS_OK(scan(&c, 1, 2, &state));
        T_OK(memcmp(before.data, state.data, tensor_bytes(&state)) == 0);
        case_close(&c);
    }
}

TEST(scan_checks_shapes)
{
    Case    c;
    int32_t start[3] = {0, 2, 5};
    Batch   two = {2, start, (int64_t[]){0, 1}};
    T_STATUS_OK(case_open(&c, 5, 6, 4, 1));
    Tensor state = ref_empty(&c.arena, 8, 6), wide = ref_empty(&c.arena, 5, 7);
#define SCAN(y, dt, bc, state) \
    op_scan(&c.be, (y), &c.u, (dt), (bc), &c.s, &two, (state))
    T_FAILS(SCAN(&wide, &c.dt, &c.bc, NULL), ERR_SHAPE,
            "scan: y is F32 [5,7], expected F32 [5,6]");
    T_FAILS(SCAN(&c.y, &wide, &c.bc, NULL), ERR_SHAPE, "scan: dt is F32 [5,7]");
    T_FAILS(SCAN(&c.y, &c.dt, &wide, NULL), ERR_SHAPE,
            "scan: bc is F32 [5,7], expected F32 [5,8]");
    T_FAILS(SCAN(&c.y, &c.dt, &c.bc, &state), ERR_SHAPE,
            "scan: a state for 2 sequences, expected one");
    T_FAILS(scan(&c, 0, 5, &c.u), ERR_SHAPE, "scan: state is F32 [5,6], expected F32 [8,6]");
    c.s.a.shape[1] = 5;
    T_FAILS(SCAN(&c.y, &c.dt, &c.bc, NULL), ERR_SHAPE,
            "scan: A is F32 [6,5], expected F32 [6,4]");
    c.s.a.shape[1] = 4;
    c.s.d.shape[0] = 5;
    T_FAILS(SCAN(&c.y, &c.dt, &c.bc, NULL), ERR_SHAPE, "scan: D is F32 [5]");
    c.s.d.shape[0] = 6;
    c.s.dt_bias.shape[0] = 7;
    T_FAILS(SCAN(&c.y, &c.dt, &c.bc, NULL), ERR_SHAPE, "scan: dt_bias is F32 [7]");
    c.s.dt_bias.shape[0] = 6;
    c.s.n_states = 0;
    T_FAILS(SCAN(&c.y, &c.dt, &c.bc, NULL), ERR_SHAPE, "scan: 0 states");
    c.s.n_states = 4;
    start[2] = 4;
    T_FAILS(SCAN(&c.y, &c.dt, &c.bc, NULL), ERR_SHAPE, "expected them to cover rows 0 to 5");
    start[2] = 5;
    for (int k = 1; k <= 2; k++) {
        arena_fail_at(k);
        T_FAILS(SCAN(&c.y, &c.dt, &c.bc, NULL), ERR_MEMORY, "out of memory");
        arena_fail_at(0);
    }
    T_STATUS_OK(SCAN(&c.y, &c.dt, &c.bc, NULL));
    case_close(&c);
}
