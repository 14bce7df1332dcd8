/* cuda_blas.h - cuBLAS, loaded when the first product needs it: its libraries are hundreds of
 * megabytes, which runs on the CPU need not map. */
#ifndef DQ_CUDA_BLAS_H
#define DQ_CUDA_BLAS_H

#include <cublas_v2.h>

#include "kernels/cuda/cuda_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is used of it. */
struct CudaBlas {
    void          *library;
    cublasHandle_t handle;
    __typeof__(&cublasCreate_v2)       create;
    __typeof__(&cublasDestroy_v2)      destroy;
    __typeof__(&cublasSetStream_v2)    set_stream;
    __typeof__(&cublasSetMathMode)     set_math_mode;
    __typeof__(&cublasGetStatusString) status_string;
    __typeof__(&cublasGemmEx)          gemm_ex;
};

/* Opens it if need be; its calls run on the backend's stream. ERR_DEVICE. */
MUST_USE Status cuda_blas(Backend *be, CudaBlas **out);
void            cuda_blas_close(CudaState *st);
/* ERR_DEVICE: "cuda: cublasGemmEx: <sentence>". */
Status cuda_blas_error(const CudaBlas *blas, cublasStatus_t e, const char *call);

#ifdef __cplusplus
}
#endif
#endif
