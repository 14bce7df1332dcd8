/* cuda_error.c - what CUDA says, as a Status. */
#include <string.h>

#include "kernels/cuda/cuda_backend.h"

Status cuda_error(cudaError_t e, const char *call)
{
    int    name = (int)strcspn(call, "(");
    Status code = e == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE;
    (void)cudaGetLastError();  // told here, not at the next launch
    return STATUS(code, "cuda: %.*s: %s", name, call, cudaGetErrorString(e));
}

Status cuda_launched(const char *kernel)
{
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess)
        FAIL(ERR_DEVICE, "cuda: kernel %s: %s", kernel, cudaGetErrorString(e));
    return OK;
}
