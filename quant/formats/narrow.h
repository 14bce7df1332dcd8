/* narrow.h - f32 as a file stores it: F32, F16 or BF16, rounded half to even. */
#ifndef DQ_NARROW_H
#define DQ_NARROW_H

#include "kernels/tensor.h"

/* out [n] of dtype d; need not be aligned. Returns the index of the first number that
 * is not finite there (NaN, infinite, or too large for d), n where all are. */
int64_t narrow_f32(void *out, Dtype d, const float *x, int64_t n);

#endif
