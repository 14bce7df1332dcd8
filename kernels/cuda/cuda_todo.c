/* cuda_todo.c - operations that are not there yet. */
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_codes.h"

#define TODO(name, ...)                                                  \
    __attribute__((weak)) Status name(__VA_ARGS__)                       \
    {                                                                    \
        FAIL(ERR_UNSUPPORTED, "cuda: " #name " is not there yet");       \
    }
#define P __attribute__((unused))

TODO(cuda_linear_codes, P Backend *be, P Linear *out, P const Codes *c, P const float *bias)
TODO(cuda_codes_linear, P Backend *be, P Tensor *y, P const Tensor *x, P const Linear *w)
TODO(cuda_codes_block, P Backend *be, P float *y, P const Tensor *x, P const Linear *w,
     P int64_t first, P int64_t n)
TODO(cuda_embed, P Backend *be, P Tensor *y, P const Tensor *table, P const int32_t *ids)
TODO(cuda_rope, P Backend *be, P Tensor *x, P int64_t heads, P const Tensor *cs,
     P const Tensor *sn, P const int32_t *positions)
TODO(cuda_attention, P Backend *be, P Tensor *out, P const Tensor *q, P const Tensor *k,
     P const Tensor *v, P const Attention *a)
TODO(cuda_norm, P Backend *be, P Tensor *y, P const Tensor *x, P int64_t heads, P const Norm *n)
TODO(cuda_glu, P Backend *be, P Tensor *gate, P const Tensor *up, P Activation act)
TODO(cuda_poly_glu, P Backend *be, P Tensor *gate, P const Tensor *up, P const float poly[4])
TODO(cuda_convolve, P Backend *be, P Tensor *y, P const Tensor *x, P const Tensor *w,
     P const Tensor *b, P const Batch *batch, P Tensor *state)
TODO(cuda_scan, P Backend *be, P Tensor *y, P const Tensor *u, P const Tensor *dt,
     P const Tensor *bc, P const Scan *s, P const Batch *batch, P Tensor *state)
TODO(cuda_copy, P Backend *be, P Tensor *y, P const Tensor *x)
TODO(cuda_sigmoid, P Backend *be, P Tensor *x)
TODO(cuda_score, P Backend *be, P const Tensor *x, P const Linear *head,
     P const int32_t *targets, P float *logprob, P int32_t *best)
TODO(cuda_divergence, P Backend *be, P const HeadPair *p)

#include "kernels/cuda/cuda_attention.h"

TODO(cuda_attn_bf16, P Backend *be, P const Attention *a, P const AttnCall *c, P bool only_scale)
TODO(cuda_attn_rows_bf16, P Backend *be, P const Attention *a, P const AttnCall *c,
     P const AttnRow *rows, P int64_t n, P float *x, P int64_t ld)
TODO(cuda_attn_record, P Backend *be, P const Attention *a, P const AttnCall *c,
     P AttnRows *rows)
TODO(cuda_attn_shares, P Backend *be, P const Attention *a, P const AttnCall *c,
     P AttnRows *rows)
