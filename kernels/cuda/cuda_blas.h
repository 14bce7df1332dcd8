/* cuda_blas.h - products by cuBLAS, which is loaded when the first product needs it: its
 * libraries are hundreds of megabytes, which runs on the CPU need not map. */
#ifndef DQ_CUDA_BLAS_H
#define DQ_CUDA_BLAS_H

#include "kernels/cuda/cuda_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c [m,n] = alpha op(a) op(b) + beta c, rows lda, ldb, ldc apart, sums in f32. a_t: a lies as
 * [k,m]; b_t: b lies as [n,k]. beta 0: c need not be set. */
typedef struct {
    int64_t     m, n, k;          // each >= 1
    const void *a, *b;            // f32; half: bf16
    float      *c;
    int64_t     lda, ldb, ldc;
    bool        a_t, b_t, half;
    bool        tf32;             // f32 rounds to TF32: 10 bits of fraction
    float       alpha, beta;
} CudaGemm;

/* On the backend's stream. ERR_DEVICE without cuBLAS; ERR_RANGE past its sizes of 32 bits. */
MUST_USE Status cuda_gemm(Backend *be, const CudaGemm *g);
void            cuda_blas_close(CudaState *st);

#ifdef __cplusplus
}
#endif
#endif
