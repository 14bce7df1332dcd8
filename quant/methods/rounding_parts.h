/* rounding_parts.h - loops over weights for one instruction set; private to rounding.c. */
#ifndef DQ_ROUNDING_PARTS_H
#define DQ_ROUNDING_PARTS_H

#include "quant/methods/rounding.h"

typedef struct {
    void (*add)(RoundSums *s, const float *w, const float *v, int64_t n);
} RoundingIsa;
extern const RoundingIsa rounding_plain, rounding_avx2, rounding_avx512;

#endif
