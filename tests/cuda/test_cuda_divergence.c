/* test_cuda_divergence.c - two heads side by side on the GPU against double; V on both sides of
 * spans (4096). */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_divergence.h"

/* Kinds of heads may differ. */
TEST(divergence_agrees_with_double)
{
    static const Dtype   TYPES[][2] = {{DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_F32},
                                       {DTYPE_F32, DTYPE_BF16}};
    static const int64_t K[][2] = {{3, 3}, {33, 20}, {16, 17}};
    T_GPU_THERE();
    for (int i = 0; i < 3; i++) {
        ref_pair_size("cuda", 1, 5, K[i], TYPES[i]);
        ref_pair_size("cuda", 1, 300, K[i], TYPES[i]);
        ref_pair_size("cuda", 2, 64, K[i], TYPES[i]);
        ref_pair_size("cuda", 35, 65, K[i], TYPES[i]);
        ref_pair_size("cuda", 3, 4096, K[i], TYPES[i]);
        ref_pair_size("cuda", 2, 4097, K[i], TYPES[i]);
        ref_pair_size("cuda", 3, 9001, K[i], TYPES[i]);
    }
}

/* 16 MiB of logits are 1024 rows of one span: more rows come in chunks, and of many rows one
 * span after the other. */
TEST(rows_and_spans_come_in_pieces)
{
    static const Dtype   F32[2] = {DTYPE_F32, DTYPE_F32};
    static const int64_t K[2] = {2, 1};
    T_GPU_THERE();
    ref_pair_size("cuda", 1026, 3, K, F32);
    ref_pair_size("cuda", 513, 4097, K, F32);
}

TEST(small_divergences_keep_their_digits)
{
    T_GPU_THERE();
    ref_pair_small("cuda");
}

TEST(equal_predictions_do_not_diverge)
{
    T_GPU_THERE();
    ref_pair_equal("cuda");
}

TEST(divergence_is_not_negative)
{
    T_GPU_THERE();
    ref_pair_not_negative("cuda", 300, 60);
}

TEST(sums_follow_a_moving_maximum)
{
    T_GPU_THERE();
    ref_pair_moving_maximum("cuda");
}

TEST(first_of_equal_logits)
{
    T_GPU_THERE();
    ref_pair_first_of_equal("cuda");
}

TEST(words_that_cannot_come)
{
    T_GPU_THERE();
    ref_pair_impossible_words("cuda");
}

TEST(nan_and_infinity_are_kept)
{
    T_GPU_THERE();
    ref_pair_nan_and_infinity("cuda");
}

/* Of e^-700 that the model cannot say: something; of e^-720, where doubles end: nothing. */
TEST(the_least_probability_that_counts)
{
    enum { V = 70 };
    static float near[2][V];
    T_GPU_THERE();
    for (int i = 0; i < 2; i++) {
        RefPair c;
        near[0][V - 1] = -INFINITY;
        near[1][V - 1] = i ? -720 : -700;
        T_STATUS_OK(ref_pair_by_hand(&c, "cuda", V, near[0], near[1]));
        T_OK(i ? c.pair.kl[0] < 1 : c.pair.kl[0] == INFINITY);
        ref_pair_close(&c);
    }
}

/* The reference's rows come from a backend of its own, whose work is still under way. */
TEST(divergence_waits_for_the_other_backend)
{
    static const int64_t K[2] = {20, 30};
    static const Dtype   F32[2] = {DTYPE_F32, DTYPE_F32};
    enum { T = 6, V = 90 };
    RefPair c;
    Backend other;
    Tensor  sent, x;
    double  want[T];
    T_GPU(&other);
    T_STATUS_OK(ref_pair_open(&c, "cuda", 1, T, V, K, F32));
    T_STATUS_OK(op_divergence(&c.be, &c.pair));
    memcpy(want, c.pair.kl, sizeof want);
    T_STATUS_OK(ref_cuda_exact(&other, &sent, c.host_x[1], T, K[1]));
    T_STATUS_OK(backend_tensor(&other, &x, 2, (int64_t[]){T, K[1]}));
    T_STATUS_OK(op_copy(&other, &x, &sent));
    c.pair.x[1] = &x;
    T_STATUS_OK(op_divergence(&c.be, &c.pair));
    T_OK(memcmp(c.pair.kl, want, sizeof want) == 0);
    backend_close(&other);
    ref_pair_close(&c);
}

TEST(no_rows_are_fine)
{
    T_GPU_THERE();
    ref_pair_no_rows("cuda");
}

TEST(survives_every_failed_allocation)
{
    T_GPU_THERE();
    ref_pair_survives("cuda", 1, 1);
}
