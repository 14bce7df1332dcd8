/* ref_both.h - a tensor that a test keeps on the host and on the GPU. */
#ifndef DQ_REF_BOTH_H
#define DQ_REF_BOTH_H

#include "tests/cuda/ref_cuda.h"

/* [rows,cols]; the host's between guards, the GPU's as ref_cuda_empty has it. */
typedef struct {
    Tensor host, gpu;
} Both;

static inline float *both_values(Both *b)
{
    return (float *)b->host.data;
}

/* Normal numbers on the host, NaN on the GPU, which begins at any of four places. */
Status both_normal(Backend *be, Arena *a, Both *b, int64_t rows, int64_t cols, uint64_t seed);
/* Zeros on both. */
Status both_zeros(Backend *be, Arena *a, Both *b, int64_t rows, int64_t cols);
Status both_send(Backend *be, Both *b);
/* The GPU's numbers into host; false where that fails or something was written around them. */
bool both_fetch(Backend *be, Both *b);
/* The numbers of t as one row. */
Tensor ref_vector(const Tensor *t);

#endif
