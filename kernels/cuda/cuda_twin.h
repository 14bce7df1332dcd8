/* cuda_twin.h - the 8-bit codes of a tensor that op_fakequant_rows has just rounded.
 * x[t,k] = scale[t] code[t,k], rounded: a linear layer of 8-bit weights that takes this x
 * multiplies whole numbers. Good until something writes to x or memory is given back.
 *
 * op_fakequant_rows to 8 bits, after cuda_begin and before its kernels: cuda_twin_open; where
 * that gives one, the kernels that round x[t,k] also write
 *   codes[t * row_bytes + cuda_twin_place(k)] = code, 0 where the scale is 0 or not finite
 *   scales[t] = the scale, NaN where the row has become NaN
 * of every t and k. Bytes of a row that no k has are 0 already. */
#ifndef DQ_CUDA_TWIN_H
#define DQ_CUDA_TWIN_H

#include "kernels/cuda/cuda_backend.h"

#ifdef __CUDACC__
#define TWIN_CALL __host__ __device__ static inline
#else
#define TWIN_CALL static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct CudaTwin {
    const void *x;          // the tensor [T,K]; NULL: of none
    int64_t     T, K;
    int64_t     row_bytes;  // K up to a multiple of 64
    int8_t     *codes;      // [T,row_bytes]
    float      *scales;     // [T]
    void       *memory;     // holds both, until backend_rewind; NULL: none
    size_t      bytes;      // of it
    size_t      used_at;    // bytes of the backend's arena up to it
};

/* Where the code of input k stands in its row: within each 64, as cuda_codes.h has the inputs
 * of a brick and ldmatrix hands out bytes,
 *   k = 16q + 8s + 4h + 2a + b  ->  32s + 16h + 4q + 2b + a
 * Eight neighbours are two groups of four bytes, 16 apart; of four the order is 0, 2, 1, 3. */
TWIN_CALL int64_t cuda_twin_place(int64_t k)
{
    return (k & ~(int64_t)63) | (k & 8) << 2 | (k & 4) << 2 | (k >> 4 & 3) << 2 |
           (k & 1) << 1 | (k >> 1 & 1);
}

/* Products on codes will ask for twins: without that there are none. ERR_MEMORY. */
MUST_USE Status cuda_twin_want(Backend *be);
/* Room for the twin of x, *out NULL where none is wanted; valid from here on. ERR_MEMORY. */
MUST_USE Status cuda_twin_open(Backend *be, CudaTwin **out, const Tensor *x);
/* The twin of x, NULL: it has none. */
const CudaTwin *cuda_twin_of(const CudaState *st, const Tensor *x);
/* Something writes to t. */
void cuda_twin_forget(CudaState *st, const Tensor *t);
/* Memory past the mark is given back. */
void cuda_twin_rewind(CudaState *st, ArenaMark mark);

#ifdef __cplusplus
}
#endif
#endif
