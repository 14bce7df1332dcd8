/* cuda_none.c - stands in for the CUDA backend where it was not compiled. */
#include "kernels/backend.h"

const bool cuda_built = false;

Status cuda_open(Backend *be, int device)
{
    (void)be;
    (void)device;
    FAIL(ERR_DEVICE, "no CUDA device: this diffquant was built without nvcc, which the CUDA "
                     "backend needs; use --device cpu");
}
