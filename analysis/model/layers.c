/* layers.c - see layers.h. A LayerSource is the open Source, no more. */
#include "analysis/layers.h"

#include "analysis/model/load.h"
#include "analysis/model/model_info.h"
#include "analysis/model/place.h"
#include "analysis/model/rest.h"
#include "analysis/model/rows.h"

struct LayerSource {
    Source source;
};

Status layers_open(Layers *l, Arena *a, const char *path)
{
    *l = (Layers){0};
    ARENA_NEW(l->source, a, 1);
    Status s = source_open(&l->source->source, a, path);
    if (s == OK)
        s = model_info_fill(&l->info, a, &l->source->source);
    if (s != OK)
        layers_close(l);
    return s;
}

void layers_close(Layers *l)
{
    if (l->source)
        source_close(&l->source->source);
    *l = (Layers){0};
}

/* --- reading --- */

static const ModelTensor *tensor_of(const Layers *l, int64_t layer, int role)
{
    return source_tensor(&l->source->source, layer, (TensorRole)role);
}

void layers_describe(LayerWeights *out, const Layers *l, int64_t layer)
{
    CHECK(layer >= 0 && layer < l->info.config.n_layers);
    *out = (LayerWeights){.number = layer};
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        const ModelTensor *t = tensor_of(l, layer, ROLE_WEIGHT + kind);
        const ModelTensor *b = tensor_of(l, layer, ROLE_BIAS + kind);
        if (!t)
            continue;
        Tensor shape = source_matrix_shape(t);
        out->at[kind] = (LayerMatrix){.name = t->name, .n = shape.shape[0],
                                      .k = shape.shape[1], .transposed = t->transposed,
                                      .float_only = !t->quantizable,
                                      .bias_name = b ? b->name : NULL};
    }
    for (int i = 0; i < 2; i++) {
        const ModelTensor *w = tensor_of(l, layer, ROLE_NORM_ATTN + i);
        const ModelTensor *b = tensor_of(l, layer, ROLE_NORM_ATTN_BIAS + i);
        out->norm_name[i] = w ? w->name : NULL;
        out->norm_bias_name[i] = b ? b->name : NULL;
    }
    const ModelTensor *head_norm = tensor_of(l, layer, ROLE_HEAD_NORM);
    out->head_norm_name = head_norm ? head_norm->name : NULL;
}

/* NULL where the model has no such tensor. */
static Status read_new(float **out, Arena *a, Layers *l, const ModelTensor *t)
{
    *out = NULL;
    if (!t)
        return OK;
    *out = arena_raw(a, tensor_count(&t->view), sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: tensor %s of %lld numbers", t->name,
             (long long)tensor_count(&t->view));
    return layers_read_tensor(*out, l, t);
}

static Status read_matrix(float **out, Arena *a, Layers *l, const ModelTensor *t)
{
    *out = NULL;
    if (!t)
        return OK;
    *out = arena_raw(a, tensor_count(&t->view), sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: tensor %s of %lld numbers", t->name,
             (long long)tensor_count(&t->view));
    return source_read_matrix(*out, a, &l->source->source, t);
}

Status layers_read(LayerWeights *out, Arena *a, Layers *l, int64_t layer)
{
    layers_describe(out, l, layer);
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        LayerMatrix *m = &out->at[kind];
        TRY(read_matrix(&m->w, a, l, tensor_of(l, layer, ROLE_WEIGHT + kind)));
        TRY(read_new(&m->bias, a, l, tensor_of(l, layer, ROLE_BIAS + kind)));
    }
    for (int i = 0; i < 2; i++) {
        TRY(read_new(&out->norm[i], a, l, tensor_of(l, layer, ROLE_NORM_ATTN + i)));
        TRY(read_new(&out->norm_bias[i], a, l, tensor_of(l, layer, ROLE_NORM_ATTN_BIAS + i)));
    }
    return read_new(&out->head_norm, a, l, tensor_of(l, layer, ROLE_HEAD_NORM));
}

Status layers_read_tensor(float *out, Layers *l, const ModelTensor *t)
{
    return source_read(out, &l->source->source, t);
}

Status layers_read_rows(float *out, Layers *l, const ModelTensor *t, int64_t first, int64_t n)
{
    return source_read_rows(out, &l->source->source, t, first, n);
}

Status layers_take_rows(float *out, Layers *l, const ModelTensor *t, int64_t first, int64_t n)
{
    return source_take_rows(out, &l->source->source, t, first, n);
}

void layers_expect_rows(const ModelTensor *t, int64_t first, int64_t n)
{
    source_expect_rows(t, first, n);
}

void layers_release_rows(const ModelTensor *t, int64_t first, int64_t n)
{
    source_release_rows(t, first, n);
}

const ModelTensor *layers_embed(const Layers *l)
{
    return tensor_of(l, 0, ROLE_EMBED);
}

const ModelTensor *layers_norm(const Layers *l)
{
    return tensor_of(l, 0, ROLE_NORM);
}

const ModelTensor *layers_head(const Layers *l)
{
    return tensor_of(l, 0, ROLE_HEAD);
}

const char *layers_head_name(const Layers *l)
{
    const Arch       *arch = l->source->source.config.arch;
    const TensorRule *rule = arch->rules;
    while (rule->role != ROLE_HEAD)
        rule++;
    return layers_head(l) ? layers_head(l)->name : rule->name;
}

const char *layers_prefix(const Layers *l)
{
    return l->source->source.config.arch->prefix;
}

int64_t layers_value_head(const Layers *l, int64_t h, int64_t p)
{
    const ModelConfig *c = &l->info.config;
    int64_t            g = h / (c->n_heads / c->n_groups), parts = c->value_dim / c->head_dim;
    CHECK(h >= 0 && h < c->n_heads && p >= 0 && p < parts);
    return rows_head(&l->source->source.config, W_V, g * parts + p);
}

int64_t layers_first_row(const Layers *l, WeightKind kind, WeightKind slot)
{
    const Config *c = &l->source->source.config;
    CHECK(kind > W_V && rows_in_order(c, kind));
    return rows_source(c, kind, slot, 0);
}

/* --- placing --- */

Status layers_model(Model *m, Arena *a, Backend *be, Layers *l, Dtype dtype)
{
    ArenaMark mark = backend_mark(be);
    *m = (Model){0};
    Loader   *loader;
    ARENA_NEW(loader, a, 1);
    *loader = (Loader){.source = &l->source->source, .info = l->info};
    model_of_info(m, &l->info, be, dtype);
    m->loader = loader;
    Status s = load_once(m, a);
    if (s != OK) {
        backend_rewind(be, mark);
        *m = (Model){0};
    }
    return s;
}

/* Norms that were given; halves that share one get the first. */
static Status place_norms(Place *p, Layer *layer, const LayerWeights *w)
{
    Norm *norms[2] = {&layer->norm_attn, &layer->norm_mlp};
    for (int i = 0; i < 2; i++)
        if (w->norm[i] || !w->norm_name[i])
            TRY(rest_norm(norms[i], p->backend, p->config,
                          (NormValues){w->norm[i], w->norm_bias[i]}));
    if (w->norm_name[0] && !w->norm_name[1])
        layer->norm_mlp = layer->norm_attn;
    return OK;
}

static Status place_layer(Place *p, Layer *layer, const LayerWeights *w)
{
    TRY(place_norms(p, layer, w));
    for (int slot = 0; slot < N_WEIGHTS; slot++) {
        const LayerMatrix *at = &w->at[slot];
        Tensor             matrix = tensor_2d(DTYPE_F32, at->w, at->n, at->k);
        if (at->w)
            TRY(place_matrix(p, layer, (WeightKind)slot, &matrix, at->bias));
    }
    if (!w->head_norm)
        return OK;
    Tensor head_norm = layer->head_norm;   // rest_load's, of the file
    return place_tensor(p->backend, &layer->head_norm, &head_norm, w->head_norm);
}

Status layers_place(Model *m, const Layers *l, const LayerWeights *w)
{
    Arena  scratch = {0};
    Layer *layer = &m->layers[w->number];
    Place  place = {&l->source->source.config, m->backend, m->dtype, &scratch};
    Status s = OK;
    GUARD(rest_load(layer, m->backend, &scratch, &l->source->source, w->number));
    s = place_layer(&place, layer, w);
out:
    arena_close(&scratch);
    return s;
}
