/* test_score.c - log_softmax of the last layer against double; V on both sides
 * of panels (64), blocks (256) and spans (4096). */
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_score.h"

static void check_size(int64_t T, int64_t V, int64_t K, Dtype dtype)
{
    RefScore c;
    T_STATUS_OK(ref_score_open(&c, "cpu", 2, T, V, K, dtype));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    ref_score_check(&c);
    T_OK(ref_guards_hold(c.logprob, T));
    float *again = ref_guarded(&c.arena, T);
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, again, NULL));
    T_OK(memcmp(again, c.logprob, (size_t)T * sizeof *again) == 0);
    ref_score_close(&c);
}

TEST(score_agrees_with_double)
{
    REF_EACH_ISA(isa)
    for (int bf16 = 0; bf16 < 2; bf16++) {
        Dtype dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
        check_size(1, 5, 3, dtype);
        check_size(1, 300, 33, dtype);
        check_size(2, 64, 16, dtype);
        check_size(35, 65, 20, dtype);
        check_size(33, 4096, 8, dtype);
        check_size(40, 9001, 9, dtype);
    }
}

TEST(score_bits_depend_neither_on_threads_nor_on_other_rows)
{
    enum { T = 80, V = 5000, K = 24 };
    REF_EACH_ISA(isa)
    for (int bf16 = 0; bf16 < 2; bf16++) {
        RefScore one, two;
        T_STATUS_OK(ref_score_open(&one, "cpu", 1, T, V, K, bf16 ? DTYPE_BF16 : DTYPE_F32));
        T_STATUS_OK(ref_score_open(&two, "cpu", 2, T, V, K, bf16 ? DTYPE_BF16 : DTYPE_F32));
        T_STATUS_OK(op_score(&one.be, &one.x, &one.head, one.targets, one.logprob, one.best));
        /* Rows 41 .. 80 alone; without best, fewer rows are computed. */
        Tensor part = tensor_2d(DTYPE_F32, (float *)two.x.data + 41 * K, T - 41, K);
        T_STATUS_OK(op_score(&two.be, &part, &two.head, one.targets + 41, two.logprob, NULL));
        T_OK(memcmp(two.logprob, one.logprob + 41, (T - 41) * sizeof(float)) == 0);
        ref_score_close(&one);
        ref_score_close(&two);
    }
}

TEST(score_takes_the_first_of_equal_logits)
{
    REF_EACH_ISA(isa) ref_score_first_of_equal("cpu");
}

TEST(score_of_nan_and_infinite_logits)
{
    REF_EACH_ISA(isa) ref_score_nan_and_infinity("cpu");
}

TEST(score_of_large_logits)
{
    REF_EACH_ISA(isa) ref_score_large("cpu");
}

TEST(score_checks_targets)
{
    RefScore c;
    T_STATUS_OK(ref_score_open(&c, "cpu", 1, 2, 10, 4, DTYPE_F32));
    c.targets[1] = 10;
    T_FAILS(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL), ERR_RANGE,
            "score: target 1 is 10");
    c.x.shape[1] = 5;
    T_FAILS(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL), ERR_SHAPE,
            "score: x is F32 [2,5], expected F32 [any,4]");
    ref_score_close(&c);
}

TEST(score_survives_every_failed_allocation)
{
    ref_score_survives("cpu", 2, DTYPE_F32);
}
