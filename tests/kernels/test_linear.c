/* test_linear.c - products against double; T, N, K on both sides of chunks (64 rows and parts),
 * panels (64), groups (256) and padding (16, 32). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

static const struct {
    int64_t T, N, K;
    bool    bias;
} SIZES[] = {
    {1, 1, 1, false},    {1, 65, 33, true},    {2, 64, 16, false},  {3, 130, 31, true},
    {31, 63, 48, true},  {32, 64, 64, false},  {33, 257, 40, true}, {64, 256, 32, false},
    {65, 300, 100, true}, {70, 1, 200, false}, {5, 700, 7, true},   {300, 129, 96, true},
};

typedef struct {
    Arena    arena;
    Backend  be;
    Tensor   x, y, w, bias;
    Linear   linear;
    double  *want;
    double   loss;
} Case;

static Status case_open(Case *c, int i, Dtype dtype, int n_threads)
{
    int64_t T = SIZES[i].T, N = SIZES[i].N, K = SIZES[i].K;
    *c = (Case){0};
    c->x = ref_normal(&c->arena, T, K, 1 + (uint64_t)i);
    c->w = ref_normal(&c->arena, N, K, 100 + (uint64_t)i);
    c->bias = ref_normal(&c->arena, 1, N, 200 + (uint64_t)i);
    c->y = ref_empty(&c->arena, T, N);
    c->want = arena_alloc(&c->arena, T * N, sizeof *c->want);
    float *bias = SIZES[i].bias ? c->bias.data : NULL;
    c->loss = ref_linear(c->want, c->x.data, c->w.data, bias, T, N, K, dtype);
    TRY(backend_open(&c->be, "cpu", n_threads));
    return op_linear_pack(&c->be, &c->linear, c->w.data, bias, N, K, dtype);
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

static void check_against_ref(Dtype dtype)
{
    Case c;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        T_STATUS_OK(case_open(&c, (int)i, dtype, 2));
        int64_t n = SIZES[i].T * SIZES[i].N;
        T_STATUS_OK(op_linear(&c.be, &c.y, &c.x, &c.linear));
        T_NEAR(ref_worst(c.y.data, c.want, n), 0, 2 * c.loss + 1e-6);
        T_OK(ref_guards_hold(c.y.data, n));
        case_close(&c);
    }
}

TEST(linear_f32_agrees_with_double)
{
    REF_EACH_ISA(isa) check_against_ref(DTYPE_F32);
}

TEST(linear_bf16_agrees_with_double)
{
    REF_EACH_ISA(isa) check_against_ref(DTYPE_BF16);
}

/* Bits of all T rows with 1 thread, then of each smaller batch with 2. */
static void check_rows_alone(Dtype dtype)
{
    enum { T = 100, N = 300, K = 200 };
    Arena   arena = {0};
    Backend one, two;
    Linear  w1, w2;
    Tensor  x = ref_normal(&arena, T, K, 5), w = ref_normal(&arena, N, K, 6);
    Tensor  y = ref_empty(&arena, T, N);
    T_STATUS_OK(backend_open(&one, "cpu", 1));
    T_STATUS_OK(backend_open(&two, "cpu", 2));
    T_STATUS_OK(op_linear_pack(&one, &w1, w.data, NULL, N, K, dtype));
    T_STATUS_OK(op_linear_pack(&two, &w2, w.data, NULL, N, K, dtype));
    T_STATUS_OK(op_linear(&one, &y, &x, &w1));
    const int64_t FIRST[] = {0, 0, 1, 7, 31, 32, 60, 98};
    const int64_t COUNT[] = {100, 2, 33, 64, 5, 12, 40, 2};
    for (size_t i = 0; i < sizeof FIRST / sizeof *FIRST; i++) {
        Tensor part_x = tensor_2d(DTYPE_F32, (float *)x.data + FIRST[i] * K, COUNT[i], K);
        Tensor part_y = ref_empty(&arena, COUNT[i], N);
        T_STATUS_OK(op_linear(&two, &part_y, &part_x, &w2));
        T_OK(memcmp(part_y.data, (float *)y.data + FIRST[i] * N, tensor_bytes(&part_y)) == 0);
    }
    backend_close(&one);
    backend_close(&two);
    arena_close(&arena);
}

TEST(linear_row_depends_neither_on_threads_nor_on_other_rows)
{
    REF_EACH_ISA(isa)
    {
        check_rows_alone(DTYPE_F32);
        check_rows_alone(DTYPE_BF16);
    }
}

/* NaN and infinity stay in their row; what is not finite in W is in its column. */
static void check_not_finite(Dtype dtype, int64_t T)
{
    enum { N = 70, K = 40 };
    Arena   arena = {0};
    Backend be;
    Linear  linear;
    Tensor  x = ref_normal(&arena, T, K, 1), w = ref_normal(&arena, N, K, 2);
    Tensor  y = ref_empty(&arena, T, N);
    float  *px = x.data, *pw = w.data, *py = y.data;
    px[K - 1] = NAN;
    if (T > 1)
        px[(T - 1) * K] = INFINITY;
    pw[69 * K + 3] = NAN;
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_linear_pack(&be, &linear, pw, NULL, N, K, dtype));
    T_STATUS_OK(op_linear(&be, &y, &x, &linear));
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++) {
            float v = py[t * N + n];
            if (t == 0 || n == 69)
                T_OK(isnan(v));
            else if (t == T - 1)
                T_OK(isinf(v) && (v > 0) == (pw[n * K] > 0));
            else
                T_OK(isfinite(v));
        }
    backend_close(&be);
    arena_close(&arena);
}

TEST(linear_passes_nan_and_infinity)
{
    REF_EACH_ISA(isa)
    {
        check_not_finite(DTYPE_F32, 1);
        check_not_finite(DTYPE_F32, 35);
        check_not_finite(DTYPE_BF16, 1);
        check_not_finite(DTYPE_BF16, 35);
    }
}

/* The same tests where oneDNN has no bf16, and none of the kernels we take: it
 * reads its limit once a process. */
TEST(linear_holds_on_older_processors)
{
    const char *const LIMITS[] = {"AVX512_CORE", "AVX2", "SSE41"};
    char              command[320], self[200] = "";
    if (getenv("DQ_OLDER_PROCESSOR"))
        return;
    T_OK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "DQ_OLDER_PROCESSOR=1 ONEDNN_MAX_CPU_ISA=%s '%s' linear > /dev/null",
                 LIMITS[i], self);
        T_OK(system(command) == 0);
    }
}

TEST(linear_of_no_rows_is_fine)
{
    Case c;
    T_STATUS_OK(case_open(&c, 5, DTYPE_F32, 2));
    c.x.shape[0] = c.y.shape[0] = 0;
    T_STATUS_OK(op_linear(&c.be, &c.y, &c.x, &c.linear));
    T_OK(isnan(*(float *)c.y.data));
    case_close(&c);
}

TEST(linear_checks_shapes)
{
    Case c;
    Linear w;
    T_STATUS_OK(case_open(&c, 5, DTYPE_F32, 2));
    Tensor x = c.x, y = c.y;
    x.shape[1] = 65;
    T_FAILS(op_linear(&c.be, &y, &x, &c.linear), ERR_SHAPE,
            "linear: x is F32 [32,65], expected F32 [any,64]");
    y.shape[0] = 31;
    T_FAILS(op_linear(&c.be, &y, &c.x, &c.linear), ERR_SHAPE,
            "linear: y is F32 [31,64], expected F32 [32,64]");
    y = c.y;
    y.dtype = DTYPE_F16;
    T_FAILS(op_linear(&c.be, &y, &c.x, &c.linear), ERR_SHAPE, "linear: y is F16");
    T_FAILS(op_linear_pack(&c.be, &w, c.w.data, NULL, 0, 64, DTYPE_F32), ERR_SHAPE,
            "weights [0,64]");
    T_FAILS(op_linear_pack(&c.be, &w, c.w.data, NULL, 64, 64, DTYPE_F16), ERR_UNSUPPORTED,
            "products in F16, expected F32 or BF16");
    case_close(&c);
}

/* Rows of c->w, once each and in order; row `bad` fails. */
typedef struct {
    const Case *c;
    int64_t     next, bad;
} Rows;

static Status next_rows(void *context, float *w, int64_t first, int64_t n)
{
    Rows   *r = context;
    int64_t K = r->c->w.shape[1];
    if (first != r->next || n < 1)
        FAIL(ERR_SHAPE, "rows %d + %d, expected those from %d on", (int)first, (int)n,
             (int)r->next);
    if (r->bad >= first && r->bad < first + n)
        FAIL(ERR_RANGE, "row %d is spoilt", (int)r->bad);
    memcpy(w, (const float *)r->c->w.data + first * K, (size_t)(n * K) * sizeof *w);
    r->next += n;
    return OK;
}

TEST(linear_packed_by_rows_has_the_same_bits)
{
    for (int i = 0; i < (int)(sizeof SIZES / sizeof *SIZES); i++)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            Dtype  dtype = i % 2 ? DTYPE_BF16 : DTYPE_F32;
            Case   c;
            Linear w;
            T_STATUS_OK(case_open(&c, i, dtype, n_threads));
            int64_t   T = SIZES[i].T, N = SIZES[i].N;
            Rows      rows = {.c = &c, .bad = -1};
            RowReader reader = {next_rows, &rows};
            Tensor    y = ref_empty(&c.arena, T, N);
            T_STATUS_OK(op_linear_pack_rows(&c.be, &w, &reader,
                                            SIZES[i].bias ? c.bias.data : NULL, N, SIZES[i].K,
                                            dtype));
            T_OK(rows.next == N);
            T_STATUS_OK(op_linear(&c.be, &c.y, &c.x, &c.linear));
            T_STATUS_OK(op_linear(&c.be, &y, &c.x, &w));
            T_OK(memcmp(y.data, c.y.data, (size_t)(T * N) * sizeof(float)) == 0);
            rows = (Rows){.c = &c, .bad = N - 1};   // of the last piece
            T_FAILS(op_linear_pack_rows(&c.be, &w, &reader, NULL, N, SIZES[i].K, dtype),
                    ERR_RANGE, "is spoilt");
            case_close(&c);
        }
}

TEST(linear_survives_every_failed_allocation)
{
    Case c;
    for (int k = 1; k < 40; k++) {
        T_STATUS_OK(case_open(&c, 8, DTYPE_BF16, 2));
        Linear again;
        arena_fail_at(k);
        Status s = op_linear_pack(&c.be, &again, c.w.data, c.bias.data, 300, 100, DTYPE_BF16);
        if (s == OK)
            s = op_linear(&c.be, &c.y, &c.x, &again);
        arena_fail_at(0);
        bool failed = s != OK;
        T_OK(!failed || (s == ERR_MEMORY && strstr(status_text(), "out of memory")));
        T_STATUS_OK(op_linear(&c.be, &c.y, &c.x, &c.linear));
        T_NEAR(ref_worst(c.y.data, c.want, 65 * 300), 0, 2 * c.loss + 1e-6);
        case_close(&c);
        if (!failed) {
            T_OK(k > 4);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}
