/* lose.c - a GPU that is lost: put before CUDA's runtime (LD_PRELOAD), the LOSE_AFTER-th wait
 * for it fails, and all after that. */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    static int  n_left = -1;
    const char *after = getenv("LOSE_AFTER");
    void       *found = dlsym(RTLD_NEXT, "cudaStreamSynchronize");
    cudaError_t (*next)(cudaStream_t);
    memcpy(&next, &found, sizeof next);
    if (n_left < 0)
        n_left = after ? atoi(after) : 0;
    if (n_left <= 1)
        return cudaErrorLaunchFailure;
    n_left--;
    return next(stream);
}
