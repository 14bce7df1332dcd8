/* test_cuda_linear.c - products on the GPU against double; T on both sides of one row, N of a
 * block of eight rows, K of whole 16 bytes and of the four loads a lane has under way. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/half.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

static const struct {
    int64_t T, N, K;
    bool    bias;
} SIZES[] = {
    {1, 1, 1, false},    {1, 65, 33, true},     {2, 64, 16, false},  {3, 130, 31, true},
    {1, 7, 1024, true},  {1, 9, 520, false},    {1, 8, 1283, true},  {33, 257, 40, true},
    {64, 1030, 8, true}, {65, 300, 100, true},  {70, 1, 200, false}, {5, 700, 7, true},
    {1, 300, 128, true}, {1, 17, 2056, true},   {2, 5, 2049, true},
};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

typedef struct {
    Arena   arena;
    Backend be;
    Tensor  x, y, host_x;
    Linear  linear;
    float  *got;
    double *want;
    double  loss;
} Case;

static Status case_open(Case *c, int i, Dtype dtype)
{
    int64_t T = SIZES[i].T, N = SIZES[i].N, K = SIZES[i].K;
    c->host_x = ref_normal(&c->arena, T, K, 1 + (uint64_t)i);
    float *w = ref_normal(&c->arena, N, K, 100 + (uint64_t)i).data;
    float *bias = SIZES[i].bias ? ref_normal(&c->arena, 1, N, 200 + (uint64_t)i).data : NULL;
    c->got = ref_guarded(&c->arena, T * N);
    ARENA_NEW(c->want, &c->arena, T * N);
    c->loss = ref_linear(c->want, c->host_x.data, w, bias, T, N, K, dtype);
    TRY(op_linear_pack(&c->be, &c->linear, w, bias, N, K, dtype));
    TRY(ref_cuda_tensor(&c->be, &c->x, c->host_x.data, T, K, i % 3));
    return ref_cuda_empty(&c->be, &c->y, T, N, i % 4);
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

static void check_against_ref(Dtype dtype)
{
    for (int i = 0; i < N_SIZES; i++) {
        Case c = {0};
        bool whole;
        T_GPU(&c.be);
        T_STATUS_OK(case_open(&c, i, dtype));
        T_STATUS_OK(op_linear(&c.be, &c.y, &c.x, &c.linear));
        T_STATUS_OK(ref_cuda_read(&c.be, c.got, &c.y, &whole));
        T_OK(whole);
        double worst = ref_worst(c.got, c.want, SIZES[i].T * SIZES[i].N);
        if (!(worst <= 2 * c.loss + 1e-6))
            check_fail(__FILE__, __LINE__, "size %d: %g, a float loop %g", i, worst, c.loss);
        case_close(&c);
    }
}

TEST(linear_f32_agrees_with_double)
{
    check_against_ref(DTYPE_F32);
}

TEST(linear_bf16_agrees_with_double)
{
    check_against_ref(DTYPE_BF16);
}

/* Ties to even, and what is left of 16 bits of f32. */
TEST(inputs_and_weights_round_as_bf16_does)
{
    const float VALUES[] = {0x1.01p0f, 0x1.03p0f, 0x1.0101p0f, 0x1.00ffp0f, 0x1.fep127f,
                            0x1.ffp127f, -0x1.01p0f, 0x1p-140f, 0x1.8p-133f};
    enum { N = sizeof VALUES / sizeof *VALUES };
    const float ONE = 1;
    for (int T = 1; T <= N; T += N - 1) {
        Backend be;
        Linear  many, one;
        Tensor  x, y;
        float   got[N * N];
        T_GPU(&be);
        T_STATUS_OK(op_linear_pack(&be, &many, VALUES, NULL, N, 1, DTYPE_BF16));
        T_STATUS_OK(op_linear_pack(&be, &one, &ONE, NULL, 1, 1, DTYPE_BF16));
        T_STATUS_OK(ref_cuda_exact(&be, &x, (const float[N]){1, 1, 1, 1, 1, 1, 1, 1, 1}, T, 1));
        T_STATUS_OK(ref_cuda_exact(&be, &y, got, T, N));
        T_STATUS_OK(op_linear(&be, &y, &x, &many));
        T_STATUS_OK(backend_download(&be, got, &y));
        for (int i = 0; i < T * N; i++)
            T_OK(got[i] == bf16_round(VALUES[i % N]));
        T_STATUS_OK(ref_cuda_exact(&be, &x, VALUES, T, 1));
        T_STATUS_OK(ref_cuda_exact(&be, &y, got, T, 1));
        T_STATUS_OK(op_linear(&be, &y, &x, &one));
        T_STATUS_OK(backend_download(&be, got, &y));
        for (int i = 0; i < T; i++)
            T_OK(got[i] == bf16_round(VALUES[i]));
        backend_close(&be);
    }
}

/* NaN and infinity stay in their row; what is not finite in W is in its column. */
static void check_not_finite(Dtype dtype, int64_t T)
{
    enum { N = 70, K = 41 };
    Arena   arena = {0};
    Backend be;
    Linear  linear;
    Tensor  x, y;
    float  *px = ref_normal(&arena, T, K, 1).data, *pw = ref_normal(&arena, N, K, 2).data;
    float  *py = ref_guarded(&arena, T * N);
    bool    whole;
    px[K - 1] = NAN;
    if (T > 1)
        px[(T - 1) * K] = INFINITY;
    pw[69 * K + 3] = NAN;
    pw[68 * K + 40] = INFINITY;
    T_GPU(&be);
    T_STATUS_OK(op_linear_pack(&be, &linear, pw, NULL, N, K, dtype));
    T_STATUS_OK(ref_cuda_tensor(&be, &x, px, T, K, 1));
    T_STATUS_OK(ref_cuda_empty(&be, &y, T, N, 0));
    T_STATUS_OK(op_linear(&be, &y, &x, &linear));
    T_STATUS_OK(ref_cuda_read(&be, py, &y, &whole));
    T_OK(whole);
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++) {
            float v = py[t * N + n];
            if (t == 0 || n == 69)
                T_OK(isnan(v));
            else if (n == 68)
                T_OK(!isfinite(v));
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
    check_not_finite(DTYPE_F32, 1);
    check_not_finite(DTYPE_F32, 35);
    check_not_finite(DTYPE_BF16, 1);
    check_not_finite(DTYPE_BF16, 35);
}

/* The kernel of one row is ours: where x lies does not matter to it. */
TEST(one_row_has_the_same_bits_wherever_it_lies)
{
    enum { N = 40, K = 300 };
    Arena arena = {0};
    float *x = ref_normal(&arena, 1, K, 1).data, *w = ref_normal(&arena, N, K, 2).data;
    float  first[N], got[N];
    for (int shift = 0; shift < 4; shift++) {
        Backend be;
        Linear  linear;
        Tensor  tx, y;
        bool    whole;
        T_GPU(&be);
        T_STATUS_OK(op_linear_pack(&be, &linear, w, NULL, N, K, DTYPE_F32));
        T_STATUS_OK(ref_cuda_tensor(&be, &tx, x, 1, K, shift));
        T_STATUS_OK(ref_cuda_empty(&be, &y, 1, N, shift));
        T_STATUS_OK(op_linear(&be, &y, &tx, &linear));
        T_STATUS_OK(ref_cuda_read(&be, shift ? got : first, &y, &whole));
        T_OK(!shift || memcmp(got, first, sizeof got) == 0);
        backend_close(&be);
    }
    arena_close(&arena);
}

TEST(linear_of_no_rows_is_fine)
{
    Case c = {0};
    bool whole;
    T_GPU(&c.be);
    T_STATUS_OK(case_open(&c, 7, DTYPE_BF16));
    Tensor x = c.x, y = c.y;
    x.shape[0] = y.shape[0] = 0;
    T_STATUS_OK(op_linear(&c.be, &y, &x, &c.linear));
    T_STATUS_OK(ref_cuda_read(&c.be, c.got, &c.y, &whole));
    T_OK(whole && isnan(c.got[0]));
    case_close(&c);
}

/* Where asked for, and there alone. The simulator does not round to TF32. */
TEST(tf32_is_a_little_off_at_most)
{
    Case c = {0};
    bool whole;
    T_GPU(&c.be);
    T_STATUS_OK(case_open(&c, 9, DTYPE_F32));
    c.be.tf32 = true;
    T_STATUS_OK(op_linear(&c.be, &c.y, &c.x, &c.linear));
    T_STATUS_OK(ref_cuda_read(&c.be, c.got, &c.y, &whole));
    T_OK(whole);
    /* 100 products of 2^-11 each, most of them far below 3. */
    T_NEAR(ref_worst(c.got, c.want, SIZES[9].T * SIZES[9].N), 0, 100 * 0x1p-10);
    case_close(&c);
}

TEST(linear_survives_every_failed_allocation)
{
    for (int k = 1; k < 40; k++) {
        Case   c = {0};
        Linear again;
        bool   whole;
        T_GPU(&c.be);
        T_STATUS_OK(case_open(&c, 9, DTYPE_BF16));
        float *w = ref_normal(&c.arena, 300, 100, 5).data;
        arena_fail_at(k);
        Status s = op_linear_pack(&c.be, &again, w, w, 300, 100, DTYPE_BF16);
        if (s == OK)
            s = op_linear(&c.be, &c.y, &c.x, &again);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && strstr(status_text(), "out of memory")));
        T_STATUS_OK(op_linear(&c.be, &c.y, &c.x, &c.linear));
        T_STATUS_OK(ref_cuda_read(&c.be, c.got, &c.y, &whole));
        T_NEAR(ref_worst(c.got, c.want, 65 * 300), 0, 2 * c.loss + 1e-6);
        case_close(&c);
        if (s == OK) {
            T_OK(k > 3);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}
