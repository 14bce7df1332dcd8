/* halves.h - many numbers from the dtype of a file to f32 and back, by the machine's best
 * instructions. One at a time: half.h, whose rounding this is. Keeps nothing; one thread. */
#ifndef DQ_HALVES_H
#define DQ_HALVES_H

#include "kernels/tensor.h"

/* n numbers of dtype d, F32, F16 or BF16, at `in` (aligned or not) as f32. False where one
 * of them is NaN or infinite; all are written. */
bool halves_to_f32(float *out, Dtype d, const void *in, int64_t n);

/* The way back, rounded half to even; out need not be aligned. False where one is not finite
 * once stored: NaN, infinite, or too large for d. */
bool halves_from_f32(void *out, Dtype d, const float *in, int64_t n);

#endif
