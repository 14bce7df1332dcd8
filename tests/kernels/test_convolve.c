/* test_convolve.c - the causal convolution against double: ragged widths, several sequences,
 * pieces with a state. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

typedef struct {
    Arena   arena;
    Backend be;
    Tensor  x, y, w, b;
    int64_t T, E, J;
} Case;

static Status case_open(Case *c, int64_t T, int64_t E, int64_t J, int threads)
{
    *c = (Case){.T = T, .E = E, .J = J};
    c->x = ref_normal(&c->arena, T, E, 1);
    c->y = ref_empty(&c->arena, T, E);
    c->w = ref_normal(&c->arena, E, J, 2);
    c->b = tensor_1d(DTYPE_F32, ref_normal(&c->arena, 1, E, 3).data, E);
    return backend_open(&c->be, "cpu", threads);
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

/* Rows first .. end of the case as a sequence of their own. */
static Status convolve(Case *c, int64_t first, int64_t end, Tensor *state)
{
    Tensor  x = ref_part(&c->x, first, end), y = ref_part(&c->y, first, end);
    int32_t start[2] = {0, (int32_t)(end - first)};
    Batch   batch = {1, start, (int64_t[]){0}};
    return op_convolve(&c->be, &y, &x, &c->w, &c->b, &batch, state);
}

/* A chain of J multiply-adds and SiLU: at most (J + 1) 2^-24 of the sum of magnitudes, which
 * SiLU enlarges by at most 1.1, and 4 roundings of its own. */
static void check_value(Case *c, const float *x, int64_t t, int64_t e, double want)
{
    const float *w = (float *)c->w.data + e * c->J;
    double       size = c->b.data ? fabs((double)((float *)c->b.data)[e]) : 0;
    for (int64_t j = 0; j < c->J; j++) {
        int64_t from = t - (c->J - 1) + j;
        size += from < 0 ? 0 : fabs((double)w[j] * (double)x[from * c->E + e]);
    }
    double got = (double)((float *)c->y.data)[(x - (float *)c->x.data) + t * c->E + e];
    T_NEAR(got, want, ((double)(c->J + 1) * 1.1 * size + 4 * fabs(want)) * 0x1p-24 + 1e-38);
}

static void check_sequence(Case *c, int64_t first, int64_t end)
{
    const float *x = (float *)c->x.data + first * c->E;
    int64_t      T = end - first;
    double      *want = arena_alloc(&c->arena, T * c->E, sizeof *want);
    ref_convolve(want, x, c->w.data, c->b.data, T, c->E, c->J);
    for (int64_t i = 0; i < T * c->E; i++)
        check_value(c, x, i / c->E, i % c->E, want[i]);
}

static void check_shape(int64_t E, int64_t J, bool bias)
{
    static const int32_t START[] = {0, 2, 2, 3, 20};  // one is empty, one a row
    Case  c;
    Batch batch = {4, START, (int64_t[]){0, 1, 2, 3}};
    T_STATUS_OK(case_open(&c, 20, E, J, 2));
    if (!bias)
        c.b.data = NULL;
    T_STATUS_OK(op_convolve(&c.be, &c.y, &c.x, &c.w, &c.b, &batch, NULL));
    for (int q = 0; q < 4; q++)
        check_sequence(&c, START[q], START[q + 1]);
    T_OK(ref_guards_hold(c.y.data, 20 * E));
    case_close(&c);
}

static const int64_t WIDTHS[] = {1, 3, 8, 17, 31, 100, 1023, 1024, 1025, 5120};

TEST(convolve_agrees_with_double)
{
    REF_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (int64_t J = 1; J <= 5; J++)
            check_shape(WIDTHS[i], J, J % 2);
}

/* Tap J - 1 looks at the row itself. */
TEST(convolve_by_hand)
{
    REF_EACH_ISA(isa)
    {
        Case c;
        T_STATUS_OK(case_open(&c, 3, 1, 2, 1));
        memcpy(c.x.data, (float[]){1, 10, 100}, 12);
        memcpy(c.w.data, (float[]){0.5f, 0.25f}, 8);
        *(float *)c.b.data = 1000;   // there SiLU is the identity
        T_STATUS_OK(convolve(&c, 0, 3, NULL));
        T_NEAR(((float *)c.y.data)[0], 1000.25, 0);
        T_NEAR(((float *)c.y.data)[1], 1003, 0);
        T_NEAR(((float *)c.y.data)[2], 1030, 0);
        case_close(&c);
    }
}

/* Cuts in front, between and behind, pieces shorter than the state, one without rows. */
TEST(convolve_in_pieces_gives_the_same_bits)
{
    static const int64_t CUTS[][6] = {{0, 1, 2, 3, 4, 40}, {0, 20, 20, 21, 39, 40},
                                      {0, 40, 40, 40, 40, 40}, {0, 0, 3, 9, 11, 40}};
    REF_EACH_ISA(isa)
    for (int64_t J = 1; J <= 5; J++)
        for (int i = 0; i < 4; i++) {
            Case   c;
            T_STATUS_OK(case_open(&c, 40, 1029, J, 2));
            Tensor whole = ref_empty(&c.arena, 40, 1029);
            Tensor state = ref_empty(&c.arena, J - 1, 1029);
            memset(state.data, 0, tensor_bytes(&state));
            T_STATUS_OK(convolve(&c, 0, 40, NULL));
            memcpy(whole.data, c.y.data, tensor_bytes(&c.y));
            memset(c.y.data, 0xff, tensor_bytes(&c.y));
            for (int k = 0; k < 5; k++)
                T_STATUS_OK(convolve(&c, CUTS[i][k], CUTS[i][k + 1], &state));
            T_OK(memcmp(whole.data, c.y.data, tensor_bytes(&c.y)) == 0);
            Tensor last = ref_part(&c.x, 40 - (J - 1), 40);
            T_OK(memcmp(state.data, last.data, tensor_bytes(&last)) == 0);
            T_OK(ref_guards_hold(state.data, (J - 1) * 1029));
            case_close(&c);
        }
}

/* With other threads; a sequence alone or in a batch; avx2 and avx512. */
TEST(convolve_bits_depend_on_the_sequence_alone)
{
    enum { T = 64, E = 1500 };
    Arena  arena = {0};
    Tensor first = ref_empty(&arena, T, E);
    CpuIsa of = CPU_PLAIN;   // whose result `first` is
    bool   started = false;
    REF_EACH_ISA(isa)
    for (int threads = 1; threads <= 3; threads++) {
        Case    c;
        int32_t start[3] = {0, 30, T};
        Batch   batch = {2, start, (int64_t[]){0, 1}};
        T_STATUS_OK(case_open(&c, T, E, 4, threads));
        T_STATUS_OK(op_convolve(&c.be, &c.y, &c.x, &c.w, &c.b, &batch, NULL));
        if (!started || (of == CPU_PLAIN && isa != CPU_PLAIN))
            memcpy(first.data, c.y.data, tensor_bytes(&first));
        started = true;
        of = isa;
        T_OK(memcmp(first.data, c.y.data, tensor_bytes(&first)) == 0);
        T_STATUS_OK(convolve(&c, 30, T, NULL));
        T_OK(memcmp(first.data, c.y.data, tensor_bytes(&first)) == 0);
        case_close(&c);
    }
    arena_close(&arena);
}

TEST(convolve_shows_nan_for_as_long_as_it_looks_back)
{
    enum { T = 12, E = 19, J = 4 };
    REF_EACH_ISA(isa)
    for (int infinite = 0; infinite < 2; infinite++) {
        Case   c;
        T_STATUS_OK(case_open(&c, T, E, J, 1));
        Tensor state = ref_empty(&c.arena, J - 1, E);
        memset(state.data, 0, tensor_bytes(&state));
        ((float *)c.x.data)[5 * E + 17] = infinite ? INFINITY : NAN;
        T_STATUS_OK(convolve(&c, 0, 6, &state));
        T_STATUS_OK(convolve(&c, 6, T, &state));
        for (int i = 0; i < T * E; i++) {
            int t = i / E;
            T_OK(isfinite(((float *)c.y.data)[i]) ==
                 !(i % E == 17 && t >= 5 && t < 5 + J));
        }
        case_close(&c);
    }
}

TEST(convolve_checks_shapes)
{
    Case    c;
    int32_t start[3] = {0, 2, 5};
    Batch   two = {2, start, (int64_t[]){0, 1}};
    T_STATUS_OK(case_open(&c, 5, 6, 4, 1));
    Tensor state = ref_empty(&c.arena, 3, 6), none = ref_empty(&c.arena, 6, 0);
    Tensor y = ref_empty(&c.arena, 5, 7), w = ref_empty(&c.arena, 7, 4);
    Tensor b = tensor_1d(DTYPE_F32, c.x.data, 5);
#define CONVOLVE(y, w, b, state) op_convolve(&c.be, (y), &c.x, (w), (b), &two, (state))
    T_FAILS(CONVOLVE(&y, &c.w, &c.b, NULL), ERR_SHAPE,
            "convolve: y is F32 [5,7], expected F32 [5,6]");
    T_FAILS(CONVOLVE(&c.y, &w, &c.b, NULL), ERR_SHAPE,
            "convolve: w is F32 [7,4], expected F32 [6,any]");
    T_FAILS(CONVOLVE(&c.y, &none, &c.b, NULL), ERR_SHAPE, "convolve: w has rows of 0 values");
    T_FAILS(CONVOLVE(&c.y, &c.w, &b, NULL), ERR_SHAPE,
            "convolve: b is F32 [5], expected F32 [6]");
    T_FAILS(CONVOLVE(&c.y, &c.w, &c.b, &state), ERR_SHAPE,
            "convolve: a state for 2 sequences, expected one");
    T_FAILS(convolve(&c, 0, 5, &c.x), ERR_SHAPE,
            "convolve: state is F32 [5,6], expected F32 [3,6]");
    start[2] = 4;
    T_FAILS(CONVOLVE(&c.y, &c.w, &c.b, NULL), ERR_SHAPE, "expected them to cover rows 0 to 5");
    start[2] = 5;
    arena_fail_at(1);
    T_FAILS(CONVOLVE(&c.y, &c.w, &c.b, NULL), ERR_MEMORY, "out of memory");
    arena_fail_at(0);
    T_STATUS_OK(CONVOLVE(&c.y, &c.w, &c.b, NULL));
    case_close(&c);
}
