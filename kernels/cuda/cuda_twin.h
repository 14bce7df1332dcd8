/* cuda_twin.h - the 8-bit codes of a tensor that op_fakequant_rows has just rounded.
 * x' = scale[t] * code[t,k]: a linear layer of 8-bit weights that takes this x multiplies whole
 * numbers. Good until something writes to x. */
#ifndef DQ_CUDA_TWIN_H
#define DQ_CUDA_TWIN_H

#include "kernels/cuda/cuda_backend.h"

/* Something writes to t. */
static inline void cuda_twin_forget(CudaState *st, const Tensor *t)
{
    (void)st;
    (void)t;
}

#endif
