/* place.c - see place.h. */
#include "analysis/model/place.h"

#include <string.h>

#include "analysis/model/rows.h"
#include "kernels/size.h"

Status place_init(Place *p, Arena *a, const Config *c, Backend *be, Dtype dtype)
{
    int64_t rows = i64_max(model_query_width(&c->model),
                           i64_max(model_key_width(&c->model), model_value_width(&c->model)));
    *p = (Place){.config = c, .backend = be, .dtype = dtype};
    if (rows_in_order(c, W_Q))
        return OK;
    p->matrix = arena_raw(a, rows * c->model.hidden, sizeof *p->matrix);
    p->bias = arena_raw(a, rows, sizeof *p->bias);
    if (!p->matrix || !p->bias)
        FAIL(ERR_MEMORY, "out of memory: heads of %lld x %lld in another order",
             (long long)rows, (long long)c->model.hidden);
    return OK;
}

/* One kind within a checkpoint's matrix. */
typedef struct {
    const Config *c;
    WeightKind    kind, slot;
    int64_t       n;        // rows
    bool          in_order;
} Part;

static Part part_of(const Place *p, WeightKind kind, WeightKind slot)
{
    return (Part){p->config, kind, slot, rows_count(p->config, kind),
                  rows_in_order(p->config, kind)};
}

/* Rows of `bytes` each: in order where they are, or gathered in room. */
static const void *rows_of(const Part *part, void *room, const void *in, size_t bytes)
{
    const char *from = in;
    if (!in)
        return NULL;
    if (part->in_order)
        return from + (size_t)rows_source(part->c, part->kind, part->slot, 0) * bytes;
    for (int64_t i = 0; i < part->n; i++)
        memcpy((char *)room + (size_t)i * bytes,
               from + (size_t)rows_source(part->c, part->kind, part->slot, i) * bytes, bytes);
    return room;
}

static Status place_bias(Backend *be, Tensor *out, const float *bias, int64_t n)
{
    Tensor shape = tensor_1d(DTYPE_F32, NULL, n);
    return place_tensor(be, out, &shape, bias);
}

Status place_matrix(Place *p, Layer *layer, WeightKind slot, const Tensor *w,
                    const float *bias)
{
    WeightKind kinds[3];
    int        n = rows_kinds(slot, kinds);
    int64_t    K = w->shape[1];
    if (slot == W_SSM_DT) {
        TRY(place_bias(p->backend, &layer->scan.dt_bias, bias, w->shape[0]));
        bias = NULL;
    }
    for (int i = 0; i < n; i++) {
        Part part = part_of(p, kinds[i], slot);
        TRY(op_linear_pack(p->backend, &layer->w[kinds[i]],
                           rows_of(&part, p->matrix, w->data, (size_t)K * sizeof(float)),
                           rows_of(&part, p->bias, bias, sizeof *bias), part.n, K, p->dtype));
    }
    return OK;
}

static Status codes_of(Codes *out, Arena *a, const Part *part, const Codes *c)
{
    int64_t G = c->k / c->group, n = part->in_order ? 0 : part->n;
    int8_t *codes = arena_raw(a, n * c->k, sizeof *codes);
    float  *scales = arena_raw(a, n * G, sizeof *scales);
    float  *offsets = arena_raw(a, n * G, sizeof *offsets);
    if (!codes || !scales || !offsets)
        FAIL(ERR_MEMORY, "out of memory: codes of %lld x %lld in another order",
             (long long)n, (long long)c->k);
    *out = *c;
    out->n = part->n;
    out->codes = rows_of(part, codes, c->codes, (size_t)c->k);
    out->scales = rows_of(part, scales, c->scales, (size_t)G * sizeof *scales);
    out->offsets = rows_of(part, offsets, c->offsets, (size_t)G * sizeof *offsets);
    return OK;
}

Status place_codes(Place *p, Arena *a, Layer *layer, WeightKind slot, const Codes *c,
                   const float *bias)
{
    WeightKind kinds[3];
    int        n = rows_kinds(slot, kinds);
    if (slot == W_SSM_DT) {
        TRY(place_bias(p->backend, &layer->scan.dt_bias, bias, c->n));
        bias = NULL;
    }
    for (int i = 0; i < n; i++) {
        Part      part = part_of(p, kinds[i], slot);
        ArenaMark mark = arena_mark(a);
        Codes     codes;
        TRY(codes_of(&codes, a, &part, c));
        TRY(op_linear_codes(p->backend, &layer->w[kinds[i]], &codes,
                            rows_of(&part, p->bias, bias, sizeof *bias), p->dtype));
        arena_rewind(a, mark);
    }
    return OK;
}

Status place_tensor(Backend *be, Tensor *out, const Tensor *shape, const float *w)
{
    TRY(backend_tensor(be, out, shape->n_dims, shape->shape));
    return backend_upload(be, out, w);
}
