/* cuda_todo.c - operations that are not there yet. */
#include "kernels/cuda/cuda_backend.h"

#define TODO(name, ...)                                                  \
    __attribute__((weak)) Status name(__VA_ARGS__)                       \
    {                                                                    \
        FAIL(ERR_UNSUPPORTED, "cuda: " #name " is not there yet");       \
    }
#define P __attribute__((unused))

TODO(cuda_attention, P Backend *be, P Tensor *out, P const Tensor *q, P const Tensor *k,
     P const Tensor *v, P const Attention *a)

#include "kernels/cuda/cuda_attention.h"

TODO(cuda_attn_record, P Backend *be, P const Attention *a, P const AttnCall *c,
     P AttnRows *rows)
TODO(cuda_attn_shares, P Backend *be, P const Attention *a, P const AttnCall *c,
     P AttnRows *rows)
