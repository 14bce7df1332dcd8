/* kquant_parts.h - what the files of the block formats share; private to them. */
#ifndef DQ_KQUANT_PARTS_H
#define DQ_KQUANT_PARTS_H

#include "kernels/blocks.h"

/* What blocks need to know of their row. */
typedef struct {
    const float *importance;  // of the blocks' weights, or NULL
    float        mean2;       // mean of the whole row's squares; with importance only
} KquantRow;

/* n blocks, one after another. */
typedef void (*KquantEncoder)(void *blocks, const float *x, const KquantRow *row, int64_t n);

/* kquant_small_isa.c and kquant_large_isa.c: of their types; the others are NULL. */
typedef struct {
    KquantEncoder encode[N_BLOCKS];
} KquantIsa;
extern const KquantIsa kquant_small_plain, kquant_small_avx2, kquant_small_avx512;
extern const KquantIsa kquant_large_plain, kquant_large_avx2, kquant_large_avx512;

/* --- kquant_scales.c --- */

/* The number of largest magnitude, the first of such, with its sign. 0 for none. */
float kquant_extreme(const float *x, int64_t n);
/* x [n] ~ scale * q for x >= 0, q in [0, top]; least sum w (x - scale q)^2. Returns the
 * scale. */
float kquant_positive(uint8_t *q, const float *x, const float *w, int n, int top);

/* Half to even, for |x| < 2^22: then the sum with 1.5 * 2^23 has no bits below 1. Larger
 * numbers stay as large as they are. */
#define KQUANT_NEAREST(x) ((x) + 12582912.0f - 12582912.0f)

/* NaN becomes lo. */
static inline float kquant_clamp(float x, float lo, float hi)
{
    x = x > lo ? x : lo;
    return x < hi ? x : hi;
}

#endif
