/* ref_cuda.h - what tests of the GPU share: opening it or saying why not, tensors of it
 * between guards, and the CPU beside it. */
#ifndef DQ_REF_CUDA_H
#define DQ_REF_CUDA_H

#include "kernels/backend.h"
#include "tests/check.h"

/* A machine without a GPU skips the test. */
#define T_GPU_THERE()                                                    \
    do {                                                                 \
        if (!ref_cuda_there())                                           \
            T_SKIP(status_text());                                       \
    } while (0)
/* Opens it as *be. */
#define T_GPU(be)                                                        \
    do {                                                                 \
        T_GPU_THERE();                                                   \
        T_STATUS_OK(backend_open((be), "cuda", 1));                      \
    } while (0)
/* false where there is no such device, and status_text() says why. */
bool ref_cuda_there(void);

/* [rows,cols] on the device, NaN, between two guards of 64 floats; begins `shift` floats past
 * a multiple of 256 bytes. Of CPU backends too. */
Status ref_cuda_empty(Backend *be, Tensor *t, int64_t rows, int64_t cols, int64_t shift);
/* The same with numbers of the host. */
Status ref_cuda_tensor(Backend *be, Tensor *t, const float *host, int64_t rows, int64_t cols,
                       int64_t shift);
/* [rows,cols] in memory of exactly its size: what reads past it is seen. */
Status ref_cuda_exact(Backend *be, Tensor *t, const float *host, int64_t rows, int64_t cols);
/* The numbers of a tensor that ref_cuda_empty or _tensor made, and whether its guards hold. */
Status ref_cuda_read(Backend *be, float *host, const Tensor *t, bool *guards_hold);

#endif
