/* cuda_todo.c - operations that are not there yet. */
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_weights.h"

#define TODO(name, ...)                                                  \
    __attribute__((weak)) Status name(__VA_ARGS__)                       \
    {                                                                    \
        FAIL(ERR_UNSUPPORTED, "cuda: " #name " is not there yet");       \
    }
#define P __attribute__((unused))

TODO(cuda_linear_pack, P Backend *be, P Linear *out, P const float *w, P const float *bias)
TODO(cuda_linear_codes, P Backend *be, P Linear *out, P const Codes *c, P const float *bias)
TODO(cuda_product, P Backend *be, P const MatrixProduct *p)
TODO(cuda_linear, P Backend *be, P Tensor *y, P const Tensor *x, P const Linear *w)
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
TODO(cuda_fakequant_rows, P Backend *be, P Tensor *x, P const Batch *batch,
     P const RowRounding *r)
TODO(cuda_fakequant_kv, P Backend *be, P Tensor *k, P Tensor *v, P const Batch *batch,
     P int64_t head_dim, P int bits)
TODO(cuda_record, P Backend *be, P const Tensor *x, P const Batch *batch,
     P const int32_t *positions, P ValueRecord *r)
TODO(cuda_score, P Backend *be, P const Tensor *x, P const Linear *head,
     P const int32_t *targets, P float *logprob, P int32_t *best)
TODO(cuda_divergence, P Backend *be, P const HeadPair *p)

__attribute__((weak)) void cuda_weights_close(P Backend *be)
{
}
