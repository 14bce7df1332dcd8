/* place.c - see place.h; source_head (source.c) knows the order. */
#include "analysis/model/place.h"

#include <string.h>

#include "kernels/size.h"

Status place_init(Place *p, Arena *a, const Config *c, Backend *be, Dtype dtype)
{
    int64_t heads = i64_max(source_n_heads(c, W_Q), source_n_heads(c, W_K));
    int64_t rows = heads * c->keys.head_dim;
    *p = (Place){.config = c, .backend = be, .dtype = dtype};
    if (c->arch->pairing == PAIR_NONE)
        return OK;
    p->matrix = arena_raw(a, rows * c->model.hidden, sizeof *p->matrix);
    p->bias = arena_raw(a, rows, sizeof *p->bias);
    if (!p->matrix || !p->bias)
        FAIL(ERR_MEMORY, "out of memory: heads of %lld x %lld in another order",
             (long long)rows, (long long)c->model.hidden);
    return OK;
}

/* Heads of q, k or v into canonical order; cols numbers a row, 1 for a bias. */
static void gather(float *out, const float *w, const Config *c, WeightKind kind, int64_t cols)
{
    int64_t head = c->keys.head_dim * cols;
    for (int64_t j = 0; j < source_n_heads(c, kind); j++)
        memcpy(out + j * head, w + source_head(c, kind, j) * head,
               (size_t)head * sizeof *out);
}

Status place_linear(Place *p, Linear *out, WeightKind kind, const Tensor *w, const float *bias)
{
    int64_t      N = w->shape[0], K = w->shape[1];
    const float *matrix = w->data;
    if (p->matrix && kind <= W_V) {
        gather(p->matrix, matrix, p->config, kind, K);
        matrix = p->matrix;
        N = source_n_heads(p->config, kind) * p->config->keys.head_dim;
        if (bias) {
            gather(p->bias, bias, p->config, kind, 1);
            bias = p->bias;
        }
    }
    return op_linear_pack(p->backend, out, matrix, bias, N, K, p->dtype);
}

Status place_tensor(Backend *be, Tensor *out, const Tensor *shape, const float *w)
{
    TRY(backend_tensor(be, out, shape->n_dims, shape->shape));
    return backend_upload(be, out, w);
}
