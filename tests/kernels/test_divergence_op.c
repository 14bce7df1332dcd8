/* test_divergence_op.c - two heads side by side against double; V on both sides of
 * panels (64), blocks (256) and spans (4096). */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_divergence.h"
#include "tests/kernels/ref_ops.h"

/* Kinds of heads may differ: one in f32, the other in bf16 has other blocks where oneDNN
 * has no bf16. */
TEST(divergence_agrees_with_double)
{
    static const Dtype   TYPES[][2] = {{DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_F32},
                                       {DTYPE_F32, DTYPE_BF16}};
    static const int64_t K[][2] = {{3, 3}, {33, 20}, {16, 17}};
    REF_EACH_ISA(isa)
    for (int i = 0; i < 3; i++) {
        ref_pair_size("cpu", 1, 5, K[i], TYPES[i]);
        ref_pair_size("cpu", 1, 300, K[i], TYPES[i]);
        ref_pair_size("cpu", 2, 64, K[i], TYPES[i]);
        ref_pair_size("cpu", 35, 65, K[i], TYPES[i]);
        ref_pair_size("cpu", 64, 256, K[i], TYPES[i]);
        ref_pair_size("cpu", 65, 257, K[i], TYPES[i]);
        ref_pair_size("cpu", 5, 4096, K[i], TYPES[i]);
        ref_pair_size("cpu", 7, 9001, K[i], TYPES[i]);
    }
}

TEST(bits_depend_neither_on_threads_nor_on_other_rows)
{
    enum { T = 80, V = 5000 };
    static const int64_t K[2] = {24, 40};
    static const Dtype   F32[2] = {DTYPE_F32, DTYPE_F32};
    REF_EACH_ISA(isa)
    for (int n_threads = 2; n_threads < 4; n_threads++) {
        RefPair one, more;
        Tensor  part[2];
        T_STATUS_OK(ref_pair_open(&one, "cpu", 1, T, V, K, F32));
        T_STATUS_OK(ref_pair_open(&more, "cpu", n_threads, T, V, K, F32));
        T_STATUS_OK(op_divergence(&one.be, &one.pair));
        for (int i = 0; i < 2; i++) {  // rows 41 .. 80 alone
            part[i] = tensor_2d(DTYPE_F32, (float *)more.x[i].data + 41 * K[i], T - 41, K[i]);
            more.pair.x[i] = &part[i];
        }
        more.pair.targets += 41;
        T_STATUS_OK(op_divergence(&more.be, &more.pair));
        size_t n = (T - 41) * sizeof(double);
        T_OK(memcmp(more.pair.kl, one.pair.kl + 41, n) == 0 && isnan(more.pair.kl[T - 41]));
        for (int i = 0; i < 2; i++) {
            T_OK(memcmp(more.pair.logprob[i], one.pair.logprob[i] + 41, n) == 0);
            T_OK(memcmp(more.pair.best[i], one.pair.best[i] + 41, n / 2) == 0);
        }
        ref_pair_close(&one);
        ref_pair_close(&more);
    }
}

TEST(small_divergences_keep_their_digits)
{
    REF_EACH_ISA(isa) ref_pair_small("cpu");
}

TEST(equal_predictions_do_not_diverge)
{
    REF_EACH_ISA(isa) ref_pair_equal("cpu");
}

TEST(divergence_is_not_negative)
{
    REF_EACH_ISA(isa) ref_pair_not_negative("cpu", 9000, 8);
}

TEST(sums_follow_a_moving_maximum)
{
    REF_EACH_ISA(isa) ref_pair_moving_maximum("cpu");
}

TEST(first_of_equal_logits)
{
    REF_EACH_ISA(isa) ref_pair_first_of_equal("cpu");
}

TEST(words_that_cannot_come)
{
    REF_EACH_ISA(isa) ref_pair_impossible_words("cpu");
}

TEST(nan_and_infinity_are_kept)
{
    REF_EACH_ISA(isa) ref_pair_nan_and_infinity("cpu");
}

/* --- errors --- */

TEST(shapes_and_targets_are_checked)
{
    static const int64_t K[2] = {4, 6};
    static const Dtype   F32[2] = {DTYPE_F32, DTYPE_F32};
    RefPair c;
    Linear  narrow;
    T_STATUS_OK(ref_pair_open(&c, "cpu", 1, 2, 10, K, F32));
    T_STATUS_OK(op_linear_pack(&c.be, &narrow, c.w[1], NULL, 9, 6, DTYPE_F32));
    c.targets[1] = 10;
    T_FAILS(op_divergence(&c.be, &c.pair), ERR_RANGE, "divergence: target 1 is 10");
    c.pair.head[1] = &narrow;
    T_FAILS(op_divergence(&c.be, &c.pair), ERR_SHAPE,
            "divergence: vocabularies of 10 and 9 words");
    c.x[1].shape[0] = 1;
    T_FAILS(op_divergence(&c.be, &c.pair), ERR_SHAPE,
            "divergence: x of the reference is F32 [1,6], expected F32 [2,6]");
    c.x[0].shape[1] = 5;
    T_FAILS(op_divergence(&c.be, &c.pair), ERR_SHAPE,
            "divergence: x is F32 [2,5], expected F32 [any,4]");
    ref_pair_close(&c);
}

TEST(no_rows_are_fine)
{
    ref_pair_no_rows("cpu");
}

TEST(survives_every_failed_allocation)
{
    ref_pair_survives("cpu", 2, 2);
}
