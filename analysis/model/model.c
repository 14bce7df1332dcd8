/* model.c - from a checkpoint folder to a Model in canonical order. */
#include "analysis/model.h"

#include "analysis/model/model_info.h"
#include "analysis/model/place.h"
#include "analysis/model/rest.h"
#include "analysis/model/once.h"
#include "kernels/size.h"

/* One matrix at a time goes through w. */
typedef struct {
    Model              *m;
    const Source       *source;
    const ModelInfo    *info;
    const ModelOptions *options;
    Place               place;
    Arena              *scratch;
    float              *w;     // the largest matrix, as in the checkpoint
    float              *bias;  // the longest vector beside one
} Loader;

static Status loader_buffers(Loader *l, Arena *scratch)
{
    int64_t largest = 0, longest = 0;
    for (int64_t i = 0; i < l->source->n_used; i++) {
        const ModelTensor *t = &l->source->used[i];
        largest = i64_max(largest, tensor_count(&t->view));
        longest = i64_max(longest, t->view.n_dims ? t->view.shape[0] : 0);
    }
    l->w = arena_raw(scratch, largest, sizeof(float));
    l->bias = arena_raw(scratch, longest, sizeof(float));
    if (!l->w || !l->bias)
        FAIL(ERR_MEMORY, "out of memory: a buffer for %lld numbers", (long long)largest);
    return place_init(&l->place, scratch, &l->source->config, l->m->backend,
                      l->options->dtype);
}

/* Codes stay codes, unless they are to be edited. */
static Status load_codes(bool *done, Loader *l, Layer *layer, WeightKind slot,
                         const ModelTensor *t, const float *bias)
{
    ArenaMark mark = arena_mark(l->scratch);
    Codes     codes;
    TRY(source_codes(&codes, l->scratch, l->source, t));
    *done = codes.codes != NULL;
    if (*done)
        TRY(place_codes(&l->place, l->scratch, layer, slot, &codes, bias));
    arena_rewind(l->scratch, mark);
    return OK;
}

static Status load_matrix(Loader *l, Layer *layer, int64_t number, WeightKind slot)
{
    const ModelTensor *t = source_tensor(l->source, number, (TensorRole)(ROLE_WEIGHT + slot));
    const ModelTensor *b = source_tensor(l->source, number, (TensorRole)(ROLE_BIAS + slot));
    const float       *bias = b ? l->bias : NULL;
    bool               done = false;
    if (!t)
        return OK;
    if (b)
        TRY(source_read(l->bias, l->source, b));
    if (!l->options->edit)
        TRY(load_codes(&done, l, layer, slot, t, bias));
    if (done)
        return OK;
    Tensor w = source_matrix_shape(t);
    w.data = l->w;
    TRY(source_read_matrix(l->w, l->scratch, l->source, t));
    if (l->options->edit && t->quantizable)
        TRY(l->options->edit(l->options->edit_context, t->name, l->w, w.shape[0], w.shape[1]));
    return place_matrix(&l->place, layer, slot, &w, bias);
}

static Status load_layer(Loader *l, int64_t i)
{
    Layer   *layer = &l->m->layers[i];
    Backend *be = l->m->backend;
    TRY(rest_norms(layer, be, l->scratch, l->source, i));
    TRY(rest_load(layer, be, l->scratch, l->source, i));
    for (int slot = 0; slot < N_WEIGHTS; slot++)
        TRY(load_matrix(l, layer, i, (WeightKind)slot));
    if (l->info->lambda) {
        layer->lambda = (float)l->info->lambda[i];
        layer->lambda_init = (float)l->info->lambda_init[i];
    }
    return OK;
}

/* A tied head is the embedding again, packed for products. */
static Status load_head(Loader *l)
{
    const ModelConfig *c = &l->m->config;
    const ModelTensor *t = source_tensor(l->source, 0, c->tied ? ROLE_EMBED : ROLE_HEAD);
    ArenaMark          mark = arena_mark(l->scratch);
    Codes              codes = {0};
    const float       *w = l->w;
    if (!once_projects(l->source))
        TRY(source_codes(&codes, l->scratch, l->source, t));
    if (codes.codes) {
        TRY(op_linear_codes(l->m->backend, &l->m->head, &codes, NULL, l->options->dtype));
        arena_rewind(l->scratch, mark);
        return OK;
    }
    TRY(source_read(l->w, l->source, t));
    TRY(once_head(&w, l->scratch, l->m->backend, l->source));
    TRY(op_linear_pack(l->m->backend, &l->m->head, w, NULL, c->vocab, c->hidden,
                       l->options->dtype));
    arena_rewind(l->scratch, mark);
    return OK;
}

static Status load_weights(Loader *l, Arena *a)
{
    ARENA_NEW(l->m->layers, a, l->m->config.n_layers);
    TRY(once_load(l->m, l->scratch, l->w, l->source));
    for (int64_t i = 0; i < l->m->config.n_layers; i++)
        TRY(load_layer(l, i));
    return load_head(l);
}

RunQuant model_run(const Model *m, RunQuant asked)
{
    if (asked.acts)
        return asked;
    asked.acts = m->run.acts;
    asked.act_scale = m->run.act_scale;
    asked.act_wide = m->run.act_wide;
    return asked;
}

Status model_load(Model *m, Arena *a, Backend *be, const char *path,
                  const ModelOptions *options)
{
    Arena     scratch = {0};
    ArenaMark mark = backend_mark(be);
    Source    source;
    ModelInfo info;
    Status    s = OK;
    *m = (Model){0};
    TRY(source_open(&source, a, path));
    GUARD(model_info_fill(&info, a, &source));
    *m = (Model){.path = info.path, .name = info.name, .arch = info.arch,
                 .config_text = info.config_text, .n_params = info.n_params,
                 .n_bytes = info.n_bytes, .stored = info.stored, .dtype = options->dtype,
                 .config = info.config, .run = info.run, .backend = be};
    Loader l = {.m = m, .source = &source, .info = &info, .options = options,
                .scratch = &scratch};
    GUARD(loader_buffers(&l, &scratch));
    GUARD(load_weights(&l, a));
out:
    if (s != OK) {
        backend_rewind(be, mark);
        *m = (Model){0};
    }
    arena_close(&scratch);
    source_close(&source);
    return s;
}
