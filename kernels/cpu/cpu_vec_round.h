/* cpu_vec_round.h - rounding to the values that codes of few bits hold, and the largest
 * magnitude that their scale comes from. Only for *_isa.c. No fused operations: every
 * instruction set gives the same bits. */
#ifndef DQ_CPU_VEC_ROUND_H
#define DQ_CPU_VEC_ROUND_H

#include <string.h>

#include "kernels/vec.h"
#include "kernels/half.h"

/* Bits of max |x|, 0 for none. The bits of magnitudes are in order, with NaN above
 * infinity: NaN is the maximum. */
ALWAYS uint32_t absmax_bits(const float *x, int64_t n)
{
    Ivec top = {0};
    int32_t max = 0, lane[VEC];
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        top = ivec_max(top, ivec_load(x + i) & 0x7fffffff);
    memcpy(lane, &top, sizeof top);
    for (int j = 0; j < VEC; j++)
        max = lane[j] > max ? lane[j] : max;
    for (; i < n; i++) {
        int32_t u = (int32_t)(f32_bits(x[i]) & 0x7fffffffu);
        max = u > max ? u : max;
    }
    return (uint32_t)max;
}

/* A whole number within [low, high], half to even: 1.5 * 2^23 leaves no bits for a
 * fraction. NaN passes. */
ALWAYS Vec round_within(Vec v, float low, float high)
{
    const Vec shifter = vec_all(0x1.8p23f);
    v = vec_min(vec_all(high), vec_max(vec_all(low), v));
    return (v + shifter) - shifter;
}

/* scale * round(v / scale). Scale 0, of zeros or of magnitudes too small to have one,
 * gives zeros; a NaN or infinite scale NaN. */
ALWAYS Vec round_to_scale(Vec v, float scale, float low, float high)
{
    Vec code = scale == 0 ? v : round_within(v / vec_all(scale), low, high);
    return code * vec_all(scale);
}

#endif
