/* kquant_search.h - the three searches that the block formats share: scales (and a
 * minimum) under which small whole numbers come nearest to n numbers. Groups go four at
 * a time, one in each lane of a vector: the order of every sum is part of the format's
 * bytes, so a sum cannot be cut, but four sums can run side by side. */
#ifndef DQ_KQUANT_SEARCH_H
#define DQ_KQUANT_SEARCH_H

#include <stdint.h>

enum { KQUANT_LANES = 4, KQUANT_MOST = 32 };

typedef float Lanes __attribute__((vector_size(4 * KQUANT_LANES)));

/* Half to even, for |x| < 2^22: then the sum with 1.5 * 2^23 has no bits below 1. Larger
 * numbers stay as large as they are. */
#define KQUANT_NEAREST(x) ((x) + 12582912.0f - 12582912.0f)

/* NaN becomes lo. */
static inline float kquant_clamp(float x, float lo, float hi)
{
    x = x > lo ? x : lo;
    return x < hi ? x : hi;
}

/* Number i of group g of x [groups, n] into lane g of out[i]; lanes past the last group
 * are 0. And back, as bytes. */
void kquant_gather(Lanes *out, const float *x, int groups, int n);
void kquant_scatter(uint8_t *q, const Lanes *codes, int groups, int n);

/* The number of largest magnitude, the first of such, with its sign. 0 for none. */
float kquant_extreme(const float *x, int64_t n);

/* x [n] ~ scale * (q - top), q [n] in [0, 2 top - 1]: least sum w (x - ..)^2 over 19
 * scales of either sign. Scale 0 and zero codes where all of x is (nearly) 0. */
void kquant_signed(Lanes *q, Lanes *scale, const Lanes *x, const Lanes *w, int n, int top);

/* Scales tried: (first + step * k + top) / range for k = 0 .. n_steps. */
typedef struct {
    float first, step;
    int   n_steps;
} KquantSteps;

/* x [n] ~ scale * q - min, q [n] in [0, top], min >= 0. */
void kquant_range(Lanes *q, Lanes *scale, Lanes *min, const Lanes *x, const Lanes *w, int n,
                  int top, KquantSteps steps);

/* x [n] ~ scale * q for x >= 0, q in [0, top]; one group. Returns the scale. */
float kquant_positive(uint8_t *q, const float *x, const float *w, int n, int top);

#endif
