/* place.c - see place.h. */
#include "analysis/model/place.h"

#include <string.h>

#include "analysis/model/packed.h"
#include "analysis/model/rows.h"
#include "kernels/size.h"

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

/* Rows of `bytes` each: in order where they are, or gathered in scratch. */
static Status rows_of(const void **out, Arena *scratch, const Part *part, const void *in,
                      size_t bytes)
{
    const char *from = in;
    char       *room;
    *out = NULL;
    if (!in)
        return OK;
    if (part->in_order) {
        *out = from + (size_t)rows_source(part->c, part->kind, part->slot, 0) * bytes;
        return OK;
    }
    room = arena_raw(scratch, part->n, bytes);
    if (!room)
        FAIL(ERR_MEMORY, "out of memory: %lld rows of %zu bytes in another order",
             (long long)part->n, bytes);
    for (int64_t i = 0; i < part->n; i++)
        memcpy(room + (size_t)i * bytes,
               from + (size_t)rows_source(part->c, part->kind, part->slot, i) * bytes, bytes);
    *out = room;
    return OK;
}

static Status place_bias(Backend *be, Tensor *out, const float *bias, int64_t n)
{
    Tensor shape = tensor_1d(DTYPE_F32, NULL, n);
    return place_tensor(be, out, &shape, bias);
}

/* --- a matrix, in each of the forms that it comes in --- */

/* A matrix of rows in the checkpoint's order, and how one part of it is packed. */
typedef struct Matrix {
    Status (*pack)(const struct Matrix *m, Place *p, Linear *out, const Part *part,
                   const float *bias);
    const Tensor      *w;
    const Codes       *codes;
    const Source      *source;
    const ModelTensor *stored;
} Matrix;

static Status place_parts(const Matrix *m, Place *p, Layer *layer, WeightKind slot, int64_t n,
                          const float *bias)
{
    WeightKind kinds[3];
    int        n_kinds = rows_kinds(slot, kinds);
    if (slot == W_SSM_DT) {
        TRY(place_bias(p->backend, &layer->scan.dt_bias, bias, n));
        bias = NULL;
    }
    for (int i = 0; i < n_kinds; i++) {
        Part        part = part_of(p, kinds[i], slot);
        ArenaMark   mark = arena_mark(p->scratch);
        const void *b;
        TRY(rows_of(&b, p->scratch, &part, bias, sizeof *bias));
        TRY(m->pack(m, p, &layer->w[kinds[i]], &part, b));
        arena_rewind(p->scratch, mark);
    }
    return OK;
}

static Status pack_numbers(const Matrix *m, Place *p, Linear *out, const Part *part,
                           const float *bias)
{
    int64_t     K = m->w->shape[1];
    const void *w;
    TRY(rows_of(&w, p->scratch, part, m->w->data, (size_t)K * sizeof(float)));
    return op_linear_pack(p->backend, out, w, bias, part->n, K, p->dtype);
}

Status place_matrix(Place *p, Layer *layer, WeightKind slot, const Tensor *w,
                    const float *bias)
{
    Matrix m = {.pack = pack_numbers, .w = w};
    return place_parts(&m, p, layer, slot, w->shape[0], bias);
}

static Status pack_codes(const Matrix *m, Place *p, Linear *out, const Part *part,
                         const float *bias)
{
    const Codes *c = m->codes;
    size_t       groups = (size_t)(c->k / c->group) * sizeof *c->scales;
    Codes        codes = *c;
    const void  *at[3];
    TRY(rows_of(&at[0], p->scratch, part, c->codes, (size_t)c->k));
    TRY(rows_of(&at[1], p->scratch, part, c->scales, groups));
    TRY(rows_of(&at[2], p->scratch, part, c->offsets, groups));
    codes.n = part->n;
    codes.codes = at[0];
    codes.scales = at[1];
    codes.offsets = at[2];
    return op_linear_codes(p->backend, out, &codes, bias, p->dtype);
}

Status place_codes(Place *p, Layer *layer, WeightKind slot, const Codes *c, const float *bias)
{
    Matrix m = {.pack = pack_codes, .codes = c};
    return place_parts(&m, p, layer, slot, c->n, bias);
}

/* Part of a stored matrix on its way. */
typedef struct {
    const Matrix *m;
    const Part   *part;
} Reading;

static Status read_rows(void *context, float *w, int64_t first, int64_t n)
{
    const Reading *r = context;
    const Part    *part = r->part;
    int64_t        K = r->m->stored->view.shape[1];
    if (part->in_order)
        return source_read_rows(w, r->m->source, r->m->stored,
                                rows_source(part->c, part->kind, part->slot, first), n);
    for (int64_t i = 0; i < n; i++)
        TRY(source_take_rows(w + i * K, r->m->source, r->m->stored,
                             rows_source(part->c, part->kind, part->slot, first + i), 1));
    return OK;
}

static Status pack_stored(const Matrix *m, Place *p, Linear *out, const Part *part,
                          const float *bias)
{
    Reading   reading = {m, part};
    RowReader rows = {read_rows, &reading};
    return op_linear_pack_rows(p->backend, out, &rows, bias, part->n, m->stored->view.shape[1],
                               p->dtype);
}

Status place_stored(Place *p, Layer *layer, WeightKind slot, const Source *s,
                    const ModelTensor *t, const float *bias)
{
    Matrix m = {.pack = pack_stored, .source = s, .stored = t};
    CHECK(!t->transposed);
    if (!backend_measures(p->backend))
        TRY(source_begin(s, t));
    TRY(place_parts(&m, p, layer, slot, t->view.shape[0], bias));
    source_end(t);
    return OK;
}

static Status measure_codes(const Matrix *m, Place *p, Linear *out, const Part *part,
                            const float *bias)
{
    const Packed *codes = m->stored->packed;
    (void)bias;
    return backend_measure_linear(p->backend, out, part->n, codes->k, p->dtype,
                                  packed_loaded_bytes(codes) / (size_t)codes->n *
                                      (size_t)part->n);
}

Status place_measured(Place *p, Layer *layer, WeightKind slot, const ModelTensor *t,
                      const float *bias)
{
    Matrix m = {.pack = measure_codes, .stored = t};
    return place_parts(&m, p, layer, slot, t->view.shape[0], bias);
}

Status place_tensor(Backend *be, Tensor *out, const Tensor *shape, const float *w)
{
    TRY(backend_tensor(be, out, shape->n_dims, shape->shape));
    return backend_upload(be, out, w);
}
