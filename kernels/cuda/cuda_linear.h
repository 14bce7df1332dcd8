/* cuda_linear.h - products with some of a linear layer's outputs: op_linear takes them all, the
 * last layer a block of the vocabulary at a time. */
#ifndef DQ_CUDA_LINEAR_H
#define DQ_CUDA_LINEAR_H

#include "kernels/cuda/cuda_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of a row of weights lie in whole 16 bytes, zeros after the last. */
static inline int64_t cuda_linear_stride(Dtype dtype, int64_t k)
{
    int64_t step = dtype == DTYPE_BF16 ? 8 : 4;
    return (k + step - 1) / step * step;
}

/* Inputs as the products with a layer take them. */
typedef struct {
    const Linear *w;
    Tensor        x;      // [T,K] f32
    const void   *data;   // [T,stride] of w->dtype, one row f32; NULL: codes take x
    int64_t       stride;
} CudaInput;

/* Rows to take at a time with n outputs: rounded ones stay below 256 MiB, places below 2^31. */
static inline int64_t cuda_linear_rows(const Linear *w, int64_t n)
{
    int64_t most = INT32_MAX / (n > w->k ? n : w->k), half = ((int64_t)128 << 20) / w->k;
    most = most < half ? most : half;
    return most > 1 ? most : 1;
}

/* Rounded where the layer wants that, in scratch of the operation at work. */
MUST_USE Status cuda_input(Backend *be, CudaInput *in, const Tensor *x, const Linear *w);
/* y [T,n] = outputs first .. first + n of the layer, with their bias; first is a multiple of
 * 256. Calls no cuda_begin, keeps no scratch. One row goes another way than more. */
MUST_USE Status cuda_linear_block(Backend *be, float *y, const CudaInput *in, int64_t first,
                                  int64_t n);
/* bias [N] on the host, or NULL. */
MUST_USE Status cuda_pack_bias(Backend *be, Linear *out, const float *bias);

#ifdef __cplusplus
}
#endif
#endif
