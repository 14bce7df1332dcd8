/* cpu_halves.h - conversions of halves.h for one instruction set; private to them. */
#ifndef DQ_CPU_HALVES_H
#define DQ_CPU_HALVES_H

#include "kernels/tensor.h"

/* By Dtype, F32, F16 and BF16; what they return says whether all are finite. */
typedef struct {
    bool (*to_f32[DTYPE_BF16 + 1])(float *out, const void *in, int64_t n);
    bool (*from_f32[DTYPE_BF16 + 1])(void *out, const float *in, int64_t n);
} HalvesIsa;
extern const HalvesIsa halves_plain, halves_avx2, halves_avx512;

#endif
