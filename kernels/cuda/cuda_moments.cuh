/* cuda_moments.cuh - Moments on the device: sums about a shift closed, and merged; the
 * formulas of record_moments.c. Fused multiply-adds may differ from it in the last bits. */
#ifndef DQ_CUDA_MOMENTS_CUH
#define DQ_CUDA_MOMENTS_CUH

#include <math_constants.h>

#include "kernels/cuda/cuda_backend.h"

/* Of finite values only: sums of (x - shift)^p, p = 1 .. 4. */
typedef struct {
    double sum[4];
    float  shift, min, max;
} ShiftedSums;

__device__ inline Moments moments_none()
{
    Moments m = {};
    m.min = CUDART_INF;
    m.max = -CUDART_INF;
    return m;
}

/* Adds the moments of n finite values; the counts of others are the caller's. */
__device__ inline void moments_close(Moments *m, const ShiftedSums *s, int64_t count)
{
    m->count = count;
    if (count == 0)
        return;
    double n = (double)count, s2 = s->sum[1], s3 = s->sum[2], s4 = s->sum[3];
    double c = s->sum[0] / n, c2 = c * c;  // mean - shift
    m->min = (double)s->min;
    m->max = (double)s->max;
    m->mean = (double)s->shift + c;
    m->m2 = fmax(s2 - n * c2, 0.0);
    m->m3 = s3 - 3 * c * s2 + 2 * n * c2 * c;
    m->m4 = fmax(s4 - 4 * c * s3 + 6 * c2 * s2 - 3 * n * c2 * c2, 0.0);
}

/* into += from, Chan et al.; a constant keeps its mean exactly. */
__device__ inline void moments_join(Moments *into, const Moments *from)
{
    into->n_nan += from->n_nan;
    into->n_pos_inf += from->n_pos_inf;
    into->n_neg_inf += from->n_neg_inf;
    if (from->count == 0)
        return;
    if (into->count == 0)
        into->mean = from->mean;
    into->min = from->min < into->min ? from->min : into->min;
    into->max = from->max > into->max ? from->max : into->max;
    double a = (double)into->count, b = (double)from->count, per_n = 1 / (a + b);
    double fa = a * per_n, fb = b * per_n;  // shares of the count
    double d = from->mean - into->mean, d2 = d * d, ab = a * fb;
    into->m4 += from->m4 + d2 * d2 * ab * (fa * fa - fa * fb + fb * fb) +
                6 * d2 * (fa * fa * from->m2 + fb * fb * into->m2) +
                4 * d * (fa * from->m3 - fb * into->m3);
    into->m3 += from->m3 + d2 * d * ab * (fa - fb) + 3 * d * (fa * from->m2 - fb * into->m2);
    into->m2 += from->m2 + d2 * ab;
    into->mean += d * fb;
    into->count += from->count;
}

#endif
