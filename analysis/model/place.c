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

static bool reorders(const Place *p, WeightKind kind)
{
    return p->matrix && kind <= W_V;
}

/* Heads of q, k or v into canonical order; row: bytes of a row. */
static void gather(void *out, const void *in, const Config *c, WeightKind kind, size_t row)
{
    size_t head = (size_t)c->keys.head_dim * row;
    for (int64_t j = 0; j < source_n_heads(c, kind); j++)
        memcpy((char *)out + (size_t)j * head,
               (const char *)in + (size_t)source_head(c, kind, j) * head, head);
}

static const float *gather_bias(Place *p, WeightKind kind, const float *bias)
{
    if (!bias || !reorders(p, kind))
        return bias;
    gather(p->bias, bias, p->config, kind, sizeof *bias);
    return p->bias;
}

Status place_linear(Place *p, Linear *out, WeightKind kind, const Tensor *w, const float *bias)
{
    int64_t      N = w->shape[0], K = w->shape[1];
    const float *matrix = w->data;
    if (reorders(p, kind)) {
        gather(p->matrix, matrix, p->config, kind, (size_t)K * sizeof *matrix);
        matrix = p->matrix;
        N = source_n_heads(p->config, kind) * p->config->keys.head_dim;
    }
    return op_linear_pack(p->backend, out, matrix, gather_bias(p, kind, bias), N, K, p->dtype);
}

static Status gather_codes(Codes *out, Arena *a, const Place *p, WeightKind kind,
                           const Codes *c)
{
    int64_t G = c->k / c->group;
    int8_t *codes;
    float  *scales, *offsets = NULL;
    *out = *c;
    out->n = source_n_heads(p->config, kind) * p->config->keys.head_dim;
    codes = arena_raw(a, out->n * c->k, sizeof *codes);
    scales = arena_raw(a, out->n * G, sizeof *scales);
    if (c->offsets)
        offsets = arena_raw(a, out->n * G, sizeof *offsets);
    if (!codes || !scales || (c->offsets && !offsets))
        FAIL(ERR_MEMORY, "out of memory: codes of %lld x %lld in another order",
             (long long)out->n, (long long)c->k);
    gather(codes, c->codes, p->config, kind, (size_t)c->k);
    gather(scales, c->scales, p->config, kind, (size_t)G * sizeof *scales);
    if (offsets)
        gather(offsets, c->offsets, p->config, kind, (size_t)G * sizeof *offsets);
    out->codes = codes;
    out->scales = scales;
    out->offsets = offsets;
    return OK;
}

Status place_codes(Place *p, Arena *a, Linear *out, WeightKind kind, const Codes *c,
                   const float *bias)
{
    Codes gathered = *c;
    if (reorders(p, kind))
        TRY(gather_codes(&gathered, a, p, kind, c));
    return op_linear_codes(p->backend, out, &gathered, gather_bias(p, kind, bias), p->dtype);
}

Status place_tensor(Backend *be, Tensor *out, const Tensor *shape, const float *w)
{
    TRY(backend_tensor(be, out, shape->n_dims, shape->shape));
    return backend_upload(be, out, w);
}
