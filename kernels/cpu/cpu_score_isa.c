/* cpu_score_isa.c - log sum exp and first maximum of a row that comes in pieces.
 * sum     exp(x - top) in f32, 16 lanes a piece; pieces add up in double
 * best    where the largest value first stands; NaN is passed over
 * NaN     in any piece makes the sum NaN; so does +inf, as in log_softmax
 * test    tests/kernels/test_score.c */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_row_top.h"
#include "kernels/cpu/cpu_vec_math.h"

ALWAYS float one_exp(float x)
{
    return vec_exp_full(vec_all(x))[0];
}

static double sum_exp(const float *x, int64_t n, float top)
{
    Vec   sum[LANE_VECS] = {{0}};
    float lane[LANES];
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANE_VECS; j++)
            sum[j] += vec_exp_full(vec_load(x + i + j * VEC) - vec_all(top));
    memcpy(lane, sum, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return (double)lane[0];
}

static void fold(ScoreRow *row, const float *x, int64_t n, int64_t first)
{
    float top = row_largest(x, n);
    if (top > row->top) {
        row->sum *= (double)one_exp(row->top - top);
        row->top = top;
        row->best = (int32_t)(first + row_first(x, top));
    }
    row->sum += sum_exp(x, n, safe_top(row->top));
}

static void merge(ScoreRow *row, const ScoreRow *next)
{
    float top = fmaxf(row->top, next->top);
    if (next->top > row->top)
        row->best = next->best;
    row->sum = row->sum * (double)one_exp(row->top - safe_top(top)) +
               next->sum * (double)one_exp(next->top - safe_top(top));
    row->top = top;
}

const ScoreIsa ISA_NAME(score_) = {fold, merge};
