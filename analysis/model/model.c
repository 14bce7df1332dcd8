/* model.c - from a checkpoint folder to a Model in canonical order. */
#include "analysis/model.h"

#include "analysis/model/model_info.h"
#include "analysis/model/place.h"
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
    const ConfigKeys  *k = &l->source->config.keys;
    const ModelConfig *c = &l->m->config;
    int64_t queries = k->num_attention_heads * k->head_dim;
    int64_t rows = i64_max(i64_max(c->vocab, c->inter), queries);
    l->w = arena_raw(scratch, rows * c->hidden, sizeof(float));
    l->bias = arena_raw(scratch, i64_max(rows, c->hidden), sizeof(float));
    if (!l->w || !l->bias)
        FAIL(ERR_MEMORY, "out of memory: buffers for a matrix of %lld x %lld", (long long)rows,
             (long long)c->hidden);
    return place_init(&l->place, scratch, &l->source->config, l->m->backend,
                      l->options->dtype);
}

/* Codes stay codes, unless they are to be edited. */
static Status load_linear(Loader *l, Linear *out, int64_t layer, WeightKind kind)
{
    const ModelTensor *t = source_tensor(l->source, layer, (TensorRole)(ROLE_WEIGHT + kind));
    const ModelTensor *b = source_tensor(l->source, layer, (TensorRole)(ROLE_BIAS + kind));
    Tensor             w = tensor_2d(DTYPE_F32, l->w, t->view.shape[0], t->view.shape[1]);
    ArenaMark          mark = arena_mark(l->scratch);
    Codes              codes = {0};
    if (b)
        TRY(source_read(l->bias, l->source, b));
    const float *bias = b ? l->bias : NULL;
    if (!l->options->edit)
        TRY(source_codes(&codes, l->scratch, l->source, t));
    if (codes.codes) {
        TRY(place_codes(&l->place, l->scratch, out, kind, &codes, bias));
        arena_rewind(l->scratch, mark);
        return OK;
    }
    arena_rewind(l->scratch, mark);
    TRY(source_read(l->w, l->source, t));
    if (l->options->edit)
        TRY(l->options->edit(l->options->edit_context, t->name, l->w, w.shape[0], w.shape[1]));
    return place_linear(&l->place, out, kind, &w, bias);
}

/* A tensor as it stands, f32, into the backend. */
static Status load_plain(Loader *l, Tensor *out, int64_t layer, TensorRole role)
{
    const ModelTensor *t = source_tensor(l->source, layer, role);
    TRY(source_read(l->w, l->source, t));
    return place_tensor(l->m->backend, out, &t->view, l->w);
}

static Status load_layer(Loader *l, int64_t i)
{
    Layer *layer = &l->m->layers[i];
    TRY(load_plain(l, &layer->norm_attn, i, ROLE_NORM_ATTN));
    TRY(load_plain(l, &layer->norm_mlp, i, ROLE_NORM_MLP));
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        TRY(load_linear(l, &layer->w[kind], i, (WeightKind)kind));
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
    Codes              codes;
    TRY(source_codes(&codes, l->scratch, l->source, t));
    if (codes.codes) {
        TRY(op_linear_codes(l->m->backend, &l->m->head, &codes, NULL, l->options->dtype));
        arena_rewind(l->scratch, mark);
        return OK;
    }
    TRY(source_read(l->w, l->source, t));
    return op_linear_pack(l->m->backend, &l->m->head, l->w, NULL, c->vocab, c->hidden,
                          l->options->dtype);
}

static Status load_weights(Loader *l, Arena *a)
{
    ARENA_NEW(l->m->layers, a, l->m->config.n_layers);
    TRY(load_plain(l, &l->m->embed, 0, ROLE_EMBED));
    for (int64_t i = 0; i < l->m->config.n_layers; i++)
        TRY(load_layer(l, i));
    TRY(load_plain(l, &l->m->norm, 0, ROLE_NORM));
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
