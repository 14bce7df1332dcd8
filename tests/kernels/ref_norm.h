/* ref_norm.h - op_norm in double: RMS and LayerNorm, whole rows and heads. */
#ifndef DQ_REF_NORM_H
#define DQ_REF_NORM_H

#include "kernels/backend.h"

typedef struct {
    int64_t width, heads;
    bool    centred, with_w, with_b, each;  // each: vectors of whole rows
    float   mean;
} NormShape;

/* Its vectors on the host. */
Norm   ref_norm_of(Arena *a, const NormShape *s);
/* [T,C] of normal numbers about the mean. */
Tensor ref_norm_input(Arena *a, const NormShape *s, int64_t T);
/* Is each value of y [T,C] as near as its roundings let it be? */
bool   ref_norm_agrees(const float *y, const Tensor *x, const Norm *n, const NormShape *s);

#endif
