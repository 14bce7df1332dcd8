/* cuda_weights.h - where the weights of linear layers lie.
 *
 * They stay on the device while there is room; what is more stays in the host's memory, pinned,
 * and comes when it is used: one matrix ahead, on a stream of its own, into one of two slots,
 * behind the work on the one before. Which comes next is what came next the last time.
 *
 * Room: of L bytes, the limit or what the card has, 1 GiB or L/8 is left to activations,
 * whichever is more, but never more than half. Large matrices stay before small ones, so that
 * the slots, each as large as the largest that comes, are small. */
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

    /* cuda_weights.c's own. */
    CudaWeights *below;   // placed before it
    CudaStream  *of;      // its backend's
    size_t       used_at; // bytes of the backend's arena up to it
    Arena        plain;   // holds host where it could not be pinned
};

/* Room for `bytes`, until backend_rewind; to be filled by cuda_weights_write before anything
 * else of this file is called. ERR_MEMORY where neither memory has it. */
MUST_USE Status cuda_weights_new(Backend *be, CudaWeights **out, size_t bytes);
/* Bytes at .. at + bytes; the host's are free at once. */
MUST_USE Status cuda_weights_write(Backend *be, CudaWeights *w, size_t at, const void *host,
                                   size_t bytes);
/* Both: the matrix is `bytes` of host memory, which is copied. */
MUST_USE Status cuda_weights_place(Backend *be, CudaWeights **out, const void *host,
                                   size_t bytes);
/* Its address on the device, aligned to 256, for kernels launched on the backend's stream
 * before the next call of this; cuda_scratch in between leaves it where it is. */
MUST_USE Status cuda_weights_here(Backend *be, CudaWeights *w, const void **device);

/* --- for cuda_memory.c and cuda_open.c --- */

/* Moves the one placed last to the host, but not the one in use. false: none could be. */
bool cuda_weights_yield(CudaState *st);
void cuda_weights_rewind(CudaState *st, ArenaMark mark);
void cuda_weights_close(Backend *be);

#ifdef __cplusplus
}
#endif
#endif
