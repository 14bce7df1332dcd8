/* cpu_row_top.h - the largest value of a piece of a row of logits and where it first
 * stands. Only for *_isa.c. */
#ifndef DQ_CPU_ROW_TOP_H
#define DQ_CPU_ROW_TOP_H

#include <math.h>
#include <string.h>

#include "kernels/vec.h"

enum { LANES = 16, LANE_VECS = LANES / VEC };

/* exp(-inf - -inf) would be NaN where nothing but -inf came so far. */
ALWAYS float safe_top(float top)
{
    return top == -INFINITY ? 0 : top;
}

/* Of n values, n % 16 == 0; NaN is passed over, -inf where there is nothing else. */
static inline float row_largest(const float *x, int64_t n)
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

/* Where top first stands; it must. */
static inline int64_t row_first(const float *x, float top)
{
    int64_t i = 0;
    while (x[i] != top)
        i++;
    return i;
}

#endif
