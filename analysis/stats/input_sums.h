/* input_sums.h - sums of channels over rows, once an instruction set (input_stats.c). */
#ifndef DQ_INPUT_SUMS_H
#define DQ_INPUT_SUMS_H

#include <stdint.h>

/* Channels first .. first + n of s [K], of which x points to the first in the first row. */
typedef struct {
    double  *sum_abs, *sum2;   // [n] of |x|, x^2
    int32_t *top;              // [n] bits of the largest |x|: compared so, NaN is the largest
    int64_t  n, T, K;          // channels; rows, K apart
} InputSums;

typedef void InputSumsAdd(const InputSums *s, const float *x);

extern InputSumsAdd input_sums_plain, input_sums_avx2, input_sums_avx512;

#endif
