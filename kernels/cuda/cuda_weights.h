/* cuda_weights.h - where the weights of linear layers lie.
 *
 * They stay on the device while there is room; what is more stays in the host's memory, pinned,
 * and comes when it is used: one matrix ahead, on a stream of its own, into one of two slots,
 * behind the work on the one before. Which comes next is what came next the last time. */
#ifndef DQ_CUDA_WEIGHTS_H
#define DQ_CUDA_WEIGHTS_H

#include "kernels/cuda/cuda_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Linear.packed. All of a matrix is one piece of memory: numbers, or codes, then scales,
 * offsets and order at the places that cuda_codes.h says. */
typedef struct CudaWeights CudaWeights;
struct CudaWeights {
    void        *device;  // NULL: on the host
    void        *host;    // NULL: on the device
    size_t       bytes;
    CudaWeights *next;    // used after it the last time; NULL: not known
    const struct CudaCodes *codes;  // how codes lie; NULL: numbers
};

/* The matrix is `bytes` of host memory, which is copied: out->device or out->host. */
MUST_USE Status cuda_weights_place(Backend *be, CudaWeights **out, const void *host,
                                   size_t bytes);
/* Its address on the device for kernels launched before the next call of this. */
MUST_USE Status cuda_weights_here(Backend *be, CudaWeights *w, const void **device);
void            cuda_weights_close(Backend *be);

#ifdef __cplusplus
}
#endif
#endif
