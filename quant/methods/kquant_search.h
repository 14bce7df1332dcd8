/* kquant_search.h - the two searches that the block formats share: scales (and a
 * minimum) under which small whole numbers come nearest to n numbers. Groups go VEC at a
 * time, one in each lane of a vector: the order of every sum is part of the format's
 * bytes, so a sum cannot be cut, but as many sums as there are lanes run side by side.
 * Only for *_isa.c. */
#ifndef DQ_KQUANT_SEARCH_H
#define DQ_KQUANT_SEARCH_H

#include "kernels/vec.h"

enum { KQUANT_MOST = 32 };  // numbers of a group

/* x [n] ~ scale * (q - top), q [n] in [0, 2 top - 1]: least sum w (x - ..)^2 over 19
 * scales of either sign. Scale 0 and zero codes where all of x is (nearly) 0. */
void ISA_NAME(kquant_signed_)(Vec *q, Vec *scale, const Vec *x, const Vec *w, int n, int top);

/* Scales tried: (first + step * k + top) / range for k = 0 .. n_steps. */
typedef struct {
    float first, step;
    int   n_steps;
} KquantSteps;

/* x [n] ~ scale * q - min, q [n] in [0, top], min >= 0. */
void ISA_NAME(kquant_range_)(Vec *q, Vec *scale, Vec *min, const Vec *x, const Vec *w, int n,
                             int top, KquantSteps steps);

/* NaN becomes lo. */
ALWAYS Vec kquant_within(Vec x, float lo, float hi)
{
    return vec_min(vec_max(x, vec_all(lo)), vec_all(hi));
}

/* Number i of group g of x [groups, n] into lane g of out[i]; lanes past the last group
 * are 0. And back, as bytes. */
ALWAYS void kquant_gather(Vec *out, const float *x, int64_t groups, int n)
{
    float *at = (float *)out;
    if (groups < VEC)
        memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t g = 0; g < groups; g++)
        for (int i = 0; i < n; i++)
            at[i * VEC + g] = x[g * n + i];
}

ALWAYS void kquant_scatter(uint8_t *q, const Vec *codes, int64_t groups, int n)
{
    for (int i = 0; i < n; i++) {
        int32_t code[VEC];
        ivec_store(code, __builtin_convertvector(codes[i], Ivec));
        for (int64_t g = 0; g < groups; g++)
            q[g * n + i] = (uint8_t)code[g];
    }
}

#endif
