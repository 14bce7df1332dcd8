/* layers.c - see layers.h. A LayerSource is the open Source, no more. */
#include "analysis/layers.h"

#include "analysis/model/model_info.h"
#include "analysis/model/place.h"

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
        out->at[kind] = (LayerMatrix){.name = t->name, .n = t->view.shape[0],
                                      .k = t->view.shape[1], .bias_name = b ? b->name : NULL};
    }
    for (int i = 0; i < 2; i++)
        out->norm_name[i] = tensor_of(l, layer, ROLE_NORM_ATTN + i)->name;
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

Status layers_read(LayerWeights *out, Arena *a, Layers *l, int64_t layer)
{
    layers_describe(out, l, layer);
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        LayerMatrix *m = &out->at[kind];
        TRY(read_new(&m->w, a, l, tensor_of(l, layer, ROLE_WEIGHT + kind)));
        TRY(read_new(&m->bias, a, l, tensor_of(l, layer, ROLE_BIAS + kind)));
    }
    for (int i = 0; i < 2; i++)
        TRY(read_new(&out->norm[i], a, l, tensor_of(l, layer, ROLE_NORM_ATTN + i)));
    return OK;
}

Status layers_read_tensor(float *out, Layers *l, const ModelTensor *t)
{
    return source_read(out, &l->source->source, t);
}

Status layers_read_rows(float *out, Layers *l, const ModelTensor *t, int64_t first, int64_t n)
{
    return source_read_rows(out, &l->source->source, t, first, n);
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

int64_t layers_value_head(const Layers *l, int64_t h, int64_t m)
{
    const ModelConfig *c = &l->info.config;
    int64_t            g = h / (c->n_heads / c->n_groups);
    CHECK(h >= 0 && h < c->n_heads && m >= 0 && m < c->n_maps);
    return source_head(&l->source->source.config, W_V, g * c->n_maps + m);
}

/* --- placing --- */

/* A whole tensor through scratch into the backend. */
static Status place_whole(Backend *be, Tensor *out, Arena *scratch, Layers *l,
                          const ModelTensor *t)
{
    ArenaMark mark = arena_mark(scratch);
    float    *w;
    TRY(read_new(&w, scratch, l, t));
    TRY(place_tensor(be, out, &t->view, w));
    arena_rewind(scratch, mark);
    return OK;
}

Status layers_model(Model *m, Arena *a, Backend *be, Layers *l, Dtype dtype)
{
    const ModelInfo *info = &l->info;
    Arena            scratch = {0};
    ArenaMark        mark = backend_mark(be);
    Status           s = OK;
    *m = (Model){.path = info->path, .name = info->name, .arch = info->arch,
                 .config_text = info->config_text, .n_params = info->n_params,
                 .n_bytes = info->n_bytes, .stored = info->stored, .dtype = dtype,
                 .config = info->config, .run = info->run, .backend = be};
    m->layers = arena_alloc(a, info->config.n_layers, sizeof *m->layers);
    if (!m->layers)
        GUARD(STATUS(ERR_MEMORY, "out of memory: a table of %lld layers",
                     (long long)info->config.n_layers));
    GUARD(place_whole(be, &m->embed, &scratch, l, layers_embed(l)));
    GUARD(place_whole(be, &m->norm, &scratch, l, layers_norm(l)));
out:
    arena_close(&scratch);
    if (s != OK) {
        backend_rewind(be, mark);
        *m = (Model){0};
    }
    return s;
}

static Status place_layer(Place *p, Layer *layer, const LayerWeights *w)
{
    Tensor  norm = tensor_1d(DTYPE_F32, NULL, p->config->model.hidden);
    Tensor *norms[2] = {&layer->norm_attn, &layer->norm_mlp};
    for (int i = 0; i < 2; i++)
        if (w->norm[i])
            TRY(place_tensor(p->backend, norms[i], &norm, w->norm[i]));
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        const LayerMatrix *at = &w->at[kind];
        Tensor             matrix = tensor_2d(DTYPE_F32, at->w, at->n, at->k);
        if (at->w)
            TRY(place_linear(p, &layer->w[kind], (WeightKind)kind, &matrix, at->bias));
    }
    return OK;
}

Status layers_place(Model *m, const Layers *l, const LayerWeights *w)
{
    Arena  scratch = {0};
    Layer *layer = &m->layers[w->number];
    Place  place;
    Status s = OK;
    GUARD(place_init(&place, &scratch, &l->source->source.config, m->backend, m->dtype));
    if (l->info.lambda) {
        layer->lambda = (float)l->info.lambda[w->number];
        layer->lambda_init = (float)l->info.lambda_init[w->number];
    }
    s = place_layer(&place, layer, w);
out:
    arena_close(&scratch);
    return s;
}
