/* load.c - see load.h. */
#include "analysis/model/load.h"

#include "analysis/model/once.h"
#include "analysis/model/packed.h"
#include "analysis/model/place.h"
#include "analysis/model/rest.h"
#include "kernels/size.h"

enum { ROWS = 256 };   // of the embedding that are read at once

/* --- a matrix --- */

static bool has_codes(const ModelTensor *t)
{
    return t->packed && packed_has_codes(t->packed);
}

/* Codes stay codes, unless they are to be edited. */
static Status load_codes(bool *done, Place *p, Loader *l, Layer *layer, WeightKind slot,
                         const ModelTensor *t, const float *bias)
{
    ArenaMark mark = arena_mark(&l->scratch);
    Codes     codes;
    TRY(source_codes(&codes, &l->scratch, l->source, t));
    *done = codes.codes != NULL;
    if (*done)
        TRY(place_codes(p, layer, slot, &codes, bias));
    arena_rewind(&l->scratch, mark);
    return OK;
}

static Status read_new(float **out, Loader *l, const ModelTensor *t)
{
    *out = arena_raw(&l->scratch, tensor_count(&t->view), sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: tensor %s of %lld numbers", t->name,
             (long long)tensor_count(&t->view));
    return OK;
}

/* As a whole: it is turned about, or somebody wants to change it. */
static Status load_whole(Place *p, Loader *l, Layer *layer, WeightKind slot,
                         const ModelTensor *t, const float *bias)
{
    const ModelOptions *o = &l->options;
    Tensor              w = source_matrix_shape(t);
    float              *data;
    TRY(read_new(&data, l, t));
    TRY(source_read_matrix(data, &l->scratch, l->source, t));
    if (o->edit && t->quantizable)
        TRY(o->edit(o->edit_context, t->name, data, w.shape[0], w.shape[1]));
    w.data = data;
    return place_matrix(p, layer, slot, &w, bias);
}

static Status load_matrix(Place *p, Loader *l, Layer *layer, int64_t number, WeightKind slot)
{
    const ModelTensor *t = source_tensor(l->source, number, (TensorRole)(ROLE_WEIGHT + slot));
    const ModelTensor *b = source_tensor(l->source, number, (TensorRole)(ROLE_BIAS + slot));
    float             *bias = NULL;
    bool               done = false;
    if (!t)
        return OK;
    if (b) {
        TRY(read_new(&bias, l, b));
        TRY(source_read(bias, l->source, b));
    }
    if (!l->options.edit && backend_measures(p->backend) && has_codes(t))
        return place_measured(p, layer, slot, t, bias);
    if (!l->options.edit)
        TRY(load_codes(&done, p, l, layer, slot, t, bias));
    if (done)
        return OK;
    if (t->transposed || (l->options.edit && t->quantizable))
        return load_whole(p, l, layer, slot, t, bias);
    return place_stored(p, layer, slot, l->source, t, bias);
}

/* --- a layer --- */

void load_forget(Model *m, int64_t number)
{
    const ModelInfo *info = &m->loader->info;
    Layer           *layer = &m->layers[number];
    *layer = (Layer){0};
    if (info->lambda) {
        layer->lambda = (float)info->lambda[number];
        layer->lambda_init = (float)info->lambda_init[number];
    }
}

Status load_layer(Model *m, int64_t number)
{
    Loader  *l = m->loader;
    Layer   *layer = &m->layers[number];
    Backend *be = m->backend;
    Place    place = {&l->source->config, be, m->dtype, &l->scratch};
    Status   s = OK;
    load_forget(m, number);
    GUARD(rest_norms(layer, be, &l->scratch, l->source, number));
    GUARD(rest_load(layer, be, &l->scratch, l->source, number));
    for (int slot = 0; slot < N_WEIGHTS; slot++) {
        ArenaMark mark = arena_mark(&l->scratch);
        GUARD(load_matrix(&place, l, layer, number, (WeightKind)slot));
        arena_rewind(&l->scratch, mark);
    }
out:
    arena_rewind(&l->scratch, (ArenaMark){0});
    return s;
}

/* --- what a model has once --- */

typedef struct {
    const Source      *source;
    const ModelTensor *t;
} Table;

static Status read_rows(void *context, float *w, int64_t first, int64_t n)
{
    const Table *t = context;
    return source_read_rows(w, t->source, t->t, first, n);
}

static const ModelTensor *embed_of(const Loader *l)
{
    return source_tensor(l->source, 0, ROLE_EMBED);
}

/* A head of another width than the hidden states is multiplied out. */
static Status load_projected(Model *m, const ModelTensor *t)
{
    Loader      *l = m->loader;
    float       *stored;
    const float *w;
    TRY(read_new(&stored, l, t));
    TRY(source_read(stored, l->source, t));
    w = stored;
    TRY(once_head(&w, &l->scratch, m->backend, l->source));
    return op_linear_pack(m->backend, &m->head, w, NULL, m->config.vocab, m->config.hidden,
                          m->dtype);
}

/* A tied head is the embedding again, packed for products. */
static Status pack_head(Model *m)
{
    Loader            *l = m->loader;
    const ModelTensor *t = m->config.tied ? embed_of(l) : source_tensor(l->source, 0, ROLE_HEAD);
    Table              table = {l->source, t};
    RowReader          rows = {read_rows, &table};
    Codes              codes;
    if (once_projects(l->source))
        return load_projected(m, t);
    if (backend_measures(m->backend) && has_codes(t))
        return backend_measure_linear(m->backend, &m->head, m->config.vocab, m->config.hidden,
                                      m->dtype, packed_loaded_bytes(t->packed));
    TRY(source_codes(&codes, &l->scratch, l->source, t));
    if (codes.codes)
        return op_linear_codes(m->backend, &m->head, &codes, NULL, m->dtype);
    if (!backend_measures(m->backend))
        TRY(source_begin(l->source, t));
    TRY(op_linear_pack_rows(m->backend, &m->head, &rows, NULL, m->config.vocab,
                            m->config.hidden, m->dtype));
    source_end(t);
    return OK;
}

Status load_head(Model *m)
{
    Status s = pack_head(m);
    arena_rewind(&m->loader->scratch, (ArenaMark){0});
    return s;
}

Status load_once(Model *m, Arena *a)
{
    Loader *l = m->loader;
    m->layers = arena_alloc(a, m->config.n_layers, sizeof *m->layers);
    if (!m->layers)
        FAIL(ERR_MEMORY, "out of memory: a table of %lld layers",
             (long long)m->config.n_layers);
    for (int64_t i = 0; i < m->config.n_layers; i++)
        load_forget(m, i);
    Status s = once_load(m, &l->scratch, l->source);
    arena_rewind(&l->scratch, (ArenaMark){0});
    return s;
}

/* --- rows of the embedding --- */

static Status check_rows(const Loader *l, Arena *scratch)
{
    const ModelTensor *t = embed_of(l);
    int64_t            V = t->view.shape[0];
    float             *w = arena_raw(scratch, ROWS * t->view.shape[1], sizeof *w);
    if (!w)
        FAIL(ERR_MEMORY, "out of memory: rows of tensor %s", t->name);
    for (int64_t first = 0; first < V; first += ROWS)
        TRY(source_read_rows(w, l->source, t, first, i64_min(ROWS, V - first)));
    return OK;
}

Status load_check_embed(Model *m)
{
    Loader *l = m->loader;
    if (m->embed.data || m->config.tied || backend_measures(m->backend))
        return OK;   // they have been seen, or are not to be looked at
    TRY(source_begin(l->source, embed_of(l)));
    Status s = check_rows(l, &l->scratch);
    arena_rewind(&l->scratch, (ArenaMark){0});
    return s;
}

/* Rows first .. first + n of x. */
static Status send_rows(Model *m, Tensor *x, float *rows, const int32_t *ids, int64_t first,
                        int64_t n)
{
    const ModelTensor *t = embed_of(m->loader);
    int64_t            C = x->shape[1];
    Tensor             part = tensor_2d(DTYPE_F32, (float *)x->data + first * C, n, C);
    for (int64_t i = 0; i < n; i++) {
        int32_t id = ids[first + i];
        if (id < 0 || id >= t->view.shape[0])
            FAIL(ERR_RANGE, "embed: token id %lld is %d, expected 0 to %lld",
                 (long long)(first + i), id, (long long)t->view.shape[0] - 1);
        TRY(source_take_rows(rows + i * C, m->loader->source, t, id, 1));
    }
    return backend_upload(m->backend, &part, rows);
}

/* The table's pages go back: a batch is long, and the system keeps them where it can. */
Status load_rows(Model *m, Tensor *x, const int32_t *ids)
{
    const ModelTensor *t = embed_of(m->loader);
    Arena             *scratch = &m->loader->scratch;
    int64_t            T = x->shape[0], most = i64_min(ROWS, T);
    float             *rows = arena_raw(scratch, most * x->shape[1], sizeof *rows);
    Status             s = OK;
    if (!rows)
        FAIL(ERR_MEMORY, "out of memory: embeddings of %lld tokens", (long long)most);
    for (int64_t first = 0; first < T && s == OK; first += most)
        s = send_rows(m, x, rows, ids, first, i64_min(most, T - first));
    source_end(t);
    arena_rewind(scratch, (ArenaMark){0});
    return s;
}
