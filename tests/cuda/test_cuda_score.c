/* test_cuda_score.c - log_softmax of the last layer on the GPU against double; V on both sides
 * of spans (4096), T of one row and of chunks. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda_weights.h"
#include "kernels/half.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_score.h"

static void check_size(int64_t T, int64_t V, int64_t K, Dtype dtype)
{
    RefScore c;
    T_GPU_THERE();
    T_STATUS_OK(ref_score_open(&c, "cuda", 1, T, V, K, dtype));
    for (int with_best = 1; with_best >= 0; with_best--) {
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob,
                             with_best ? c.best : NULL));
        T_OK(ref_guards_hold(c.logprob, T));
        ref_score_check(&c);
        for (int64_t t = 0; t < T; t++)
            c.logprob[t] = NAN;
    }
    ref_score_close(&c);
}

static void check_sizes(Dtype dtype)
{
    check_size(1, 5, 3, dtype);
    check_size(1, 300, 33, dtype);
    check_size(2, 64, 16, dtype);
    check_size(35, 65, 20, dtype);
    check_size(5, 4095, 8, dtype);
    check_size(6, 4097, 8, dtype);
    check_size(1, 8193, 7, dtype);
    check_size(9, 9001, 9, dtype);
}

TEST(score_f32_agrees_with_double)
{
    check_sizes(DTYPE_F32);
}

TEST(score_bf16_agrees_with_double)
{
    check_sizes(DTYPE_BF16);
}

/* 16 MiB of logits are 1024 rows of one span: more rows come in chunks, and of many rows one
 * span after the other. */
TEST(rows_and_spans_come_in_pieces)
{
    check_size(1026, 3, 2, DTYPE_BF16);
    check_size(1600, 3, 2, DTYPE_F32);
    check_size(513, 4100, 1, DTYPE_F32);
}

/* Rows without a target are left out where nobody wants their best: those that are left are
 * found again. */
TEST(rows_nobody_asks_for_are_zero)
{
    enum { T = 20, V = 50, K = 7 };
    RefScore c;
    T_GPU_THERE();
    T_STATUS_OK(ref_score_open(&c, "cuda", 1, T, V, K, DTYPE_F32));
    for (int t = 0; t < T; t++) {
        c.targets[t] = t == 7 || t == 19 ? t : -5;
        if (c.targets[t] < 0)  // what is not read does not count
            for (int k = 0; k < K; k++)
                c.host_x[t * K + k] = NAN;
    }
    T_STATUS_OK(backend_upload(&c.be, &c.x, c.host_x));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL));
    for (int t = 0; t < T; t++)
        T_NEAR(c.logprob[t], t == 7 || t == 19 ? ref_logprob(c.logits + t * V, V, t) : 0,
               4 * c.loss + 1e-6);
    for (int t = 0; t < T; t++)
        c.targets[t] = -1;
    memset(c.logprob, 1, T * sizeof *c.logprob);
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL));
    for (int t = 0; t < T; t++)
        T_OK(c.logprob[t] == 0);
    ref_score_close(&c);
}

/* Weights and inputs that bf16 holds: the codes' products differ by their sums alone. */
static void check_codes(int64_t T, int bits)
{
    enum { V = 4130, K = 96, GROUP = 32 };
    RefScore c;
    uint64_t seed = 9;
    T_GPU_THERE();
    T_STATUS_OK(ref_score_open(&c, "cuda", 1, T, V, K, DTYPE_BF16));
    int8_t *codes = arena_alloc(&c.arena, V * K, 1);
    float  *scales = arena_alloc(&c.arena, V * K / GROUP, sizeof *scales);
    float  *decoded = arena_alloc(&c.arena, V * K, sizeof *decoded);
    for (int64_t i = 0; i < V * K; i++)
        codes[i] = (int8_t)floorf(check_uniform(&seed) * (float)(1 << (bits - 1)));
    for (int64_t i = 0; i < V * K / GROUP; i++)
        scales[i] = ldexpf(1, -bits - 2 - (int)(i % 3));
    for (int64_t i = 0; i < T * K; i++)
        c.host_x[i] = bf16_round(c.host_x[i]);
    Codes k = {.n = V, .k = K, .bits = bits, .group = GROUP, .codes = codes, .scales = scales};
    codes_decode(decoded, &k, 0, V);
    c.loss = ref_linear(c.logits, c.host_x, decoded, c.bias, T, V, K, DTYPE_F32);
    T_STATUS_OK(backend_upload(&c.be, &c.x, c.host_x));
    T_STATUS_OK(op_linear_codes(&c.be, &c.head, &k, c.bias, DTYPE_BF16));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    ref_score_check(&c);
    ref_score_close(&c);
}

TEST(score_of_a_head_of_codes)
{
    check_codes(1, 4);
    check_codes(3, 4);
    check_codes(3, 6);
    check_codes(2, 8);
}

/* A head that has no room comes from the host, and with it what comes next. */
TEST(score_of_a_head_that_is_on_the_host)
{
    enum { T = 5, V = 4100, K = 20 };
    RefScore c;
    float    first[T];
    T_GPU_THERE();
    T_STATUS_OK(ref_score_open(&c, "cuda", 1, T, V, K, DTYPE_F32));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, first, c.best));
    cuda_trim(cuda_state(&c.be));
    cuda_state(&c.be)->limit = 2 * cuda_state(&c.be)->held;
    T_STATUS_OK(op_linear_pack(&c.be, &c.head, c.w, c.bias, V, K, DTYPE_F32));
    T_OK(!((CudaWeights *)c.head.packed)->device);
    cuda_state(&c.be)->limit = SIZE_MAX;
    for (int i = 0; i < 2; i++) {
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        T_OK(memcmp(first, c.logprob, sizeof first) == 0);
    }
    ref_score_close(&c);
}

TEST(score_takes_the_first_of_equal_logits)
{
    T_GPU_THERE();
    ref_score_first_of_equal("cuda");
}

TEST(score_of_nan_and_infinite_logits)
{
    T_GPU_THERE();
    ref_score_nan_and_infinity("cuda");
}

TEST(score_of_large_logits)
{
    T_GPU_THERE();
    ref_score_large("cuda");
}

TEST(score_of_no_rows_is_fine)
{
    RefScore c;
    T_GPU_THERE();
    T_STATUS_OK(ref_score_open(&c, "cuda", 1, 1, 10, 4, DTYPE_F32));
    c.x.shape[0] = 0;
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    T_OK(isnan(c.logprob[0]));
    ref_score_close(&c);
}

TEST(score_survives_every_failed_allocation)
{
    T_GPU_THERE();
    ref_score_survives("cuda", 1, DTYPE_BF16);
}
