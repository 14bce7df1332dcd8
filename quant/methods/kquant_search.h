/* kquant_search.h - the three searches that the block formats share: scales (and a
 * minimum) under which small whole numbers come nearest to n numbers. The order of
 * every sum is part of the format's bytes: do not reorder. */
#ifndef DQ_KQUANT_SEARCH_H
#define DQ_KQUANT_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/half.h"

enum { KQUANT_MOST = 32 };

/* Half to even. The sum of |x| < 2^22 and 1.5 * 2^23 has no bits below 1, and its low
 * bits are the number. Beyond that: some number, which the caller clamps. */
static inline int kquant_nearest(float x)
{
    return (int)(f32_bits(x + 12582912.0f) & 0x007fffffu) - 0x00400000;
}

static inline int kquant_clamp(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* The number of largest magnitude, the first of such, with its sign. 0 for none. */
float kquant_extreme(const float *x, int64_t n);

/* x ~ scale * (q - top), q in [0, 2 top - 1]: least sum w (x - ..)^2 over 19 scales.
 * Returns the scale, of either sign; 0 and zero codes where all of x is (nearly) 0. */
float kquant_signed(uint8_t *q, const float *x, const float *w, int n, int top);

/* Scales tried: (first + step * k + top) / range for k = 0 .. n_steps. */
typedef struct {
    float first, step;
    int   n_steps;
} KquantSteps;

/* x ~ scale * q - *min, q in [0, top], *min >= 0. */
float kquant_range(uint8_t *q, float *min, const float *x, const float *w, int n, int top,
                   KquantSteps steps);

/* x ~ scale * q for x >= 0, q in [0, top]. */
float kquant_positive(uint8_t *q, const float *x, const float *w, int n, int top);

#endif
