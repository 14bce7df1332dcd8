/* cpu_score_isa.c - log sum exp and first maximum of a row that comes in pieces.
 * sum     exp(x - top) in f32, 16 lanes a piece; pieces add up in double
 * best    where the largest value first stands; NaN is passed over
 * NaN     in any piece makes the sum NaN; so does +inf, as in log_softmax
 * test    tests/kernels/test_score.c */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_vec_math.h"

enum { LANES = 16, LANE_VECS = LANES / VEC };

ALWAYS float one_exp(float x)
{
    return vec_exp_full(vec_all(x))[0];
}

/* exp(-inf - -inf) would be NaN where nothing but -inf came so far. */
ALWAYS float safe_top(float top)
{
    return top == -INFINITY ? 0 : top;
}

static float largest(const float *x, int64_t n)
{
    Vec   top[LANE_VECS];
    float lane[LANES], max = -INFINITY;
    for (int j = 0; j < LANE_VECS; j++)
        top[j] = vec_all(-INFINITY);
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANE_VECS; j++)
            top[j] = vec_max(vec_load(x + i + j * VEC), top[j]);
    memcpy(lane, top, sizeof lane);
    for (int j = 0; j < LANES; j++)
        max = lane[j] > max ? lane[j] : max;
    return max;
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
    float top = largest(x, n);
    if (top > row->top) {
        row->sum *= (double)one_exp(row->top - top);
        row->top = top;
        int64_t i = 0;
        while (x[i] != top)
            i++;
        row->best = (int32_t)(first + i);
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
