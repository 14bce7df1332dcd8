/* model.c - from a checkpoint folder to a Model in canonical order. */
#include "analysis/model.h"

#include <string.h>

#include "analysis/model/model_info.h"
#include "kernels/size.h"

/* One matrix at a time goes through w. */
typedef struct {
    Model              *m;
    const Source       *source;
    const ModelInfo    *info;
    const ModelOptions *options;
    float              *w;         // the largest matrix, as in the checkpoint
    float              *gathered;  // the largest of q, k, v, in canonical order
    float              *bias;      // a bias vector, likewise twice
    float              *bias_gathered;
} Loader;

static Status loader_buffers(Loader *l, Arena *scratch)
{
    const ConfigKeys  *k = &l->source->config.keys;
    const ModelConfig *c = &l->m->config;
    int64_t queries = k->num_attention_heads * k->head_dim;
    int64_t rows = i64_max(i64_max(c->vocab, c->inter), queries);
    int64_t heads = i64_max(source_n_heads(&l->source->config, W_Q),
                            source_n_heads(&l->source->config, W_K));
    int64_t longest = i64_max(i64_max(rows, c->hidden), heads * c->head_dim);
    bool    reorder = l->source->config.arch->pairing != PAIR_NONE;
    l->w = arena_raw(scratch, rows * c->hidden, sizeof(float));
    l->gathered = arena_raw(scratch, reorder ? heads * c->head_dim * c->hidden : 0,
                            sizeof(float));
    l->bias = arena_raw(scratch, longest, sizeof(float));
    l->bias_gathered = arena_raw(scratch, longest, sizeof(float));
    if (!l->w || !l->gathered || !l->bias || !l->bias_gathered)
        FAIL(ERR_MEMORY, "out of memory: buffers for a matrix of %lld x %lld", (long long)rows,
             (long long)c->hidden);
    return OK;
}

/* Heads of q, k or v (cols numbers a row; 1 for a bias) into canonical order. */
static const float *gather(float *out, const float *w, const Config *c, WeightKind kind,
                           int64_t cols)
{
    int64_t head = c->keys.head_dim * cols;
    if (kind > W_V || c->arch->pairing == PAIR_NONE)
        return w;
    for (int64_t j = 0; j < source_n_heads(c, kind); j++)
        memcpy(out + j * head, w + source_head(c, kind, j) * head,
               (size_t)head * sizeof *out);
    return out;
}

static Status load_linear(Loader *l, Linear *out, int64_t layer, WeightKind kind)
{
    const Config      *c = &l->source->config;
    const ModelTensor *t = source_tensor(l->source, layer, (TensorRole)(ROLE_WEIGHT + kind));
    const ModelTensor *b = source_tensor(l->source, layer, (TensorRole)(ROLE_BIAS + kind));
    int64_t            N = t->view.shape[0], K = t->view.shape[1];
    const float       *bias = NULL;
    TRY(source_read(l->w, l->source, t));
    if (l->options->edit)
        TRY(l->options->edit(l->options->edit_context, t->name, l->w, N, K));
    const float *w = gather(l->gathered, l->w, c, kind, K);
    if (b) {
        TRY(source_read(l->bias, l->source, b));
        bias = gather(l->bias_gathered, l->bias, c, kind, 1);
    }
    if (kind <= W_V)
        N = source_n_heads(c, kind) * c->keys.head_dim;
    return op_linear_pack(l->m->backend, out, w, bias, N, K, l->options->dtype);
}

/* A tensor as it stands, f32, into the backend. */
static Status load_plain(Loader *l, Tensor *out, int64_t layer, TensorRole role)
{
    const ModelTensor *t = source_tensor(l->source, layer, role);
    TRY(source_read(l->w, l->source, t));
    TRY(backend_tensor(l->m->backend, out, t->view.n_dims, t->view.shape));
    return backend_upload(l->m->backend, out, l->w);
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
    TensorRole         role = c->tied ? ROLE_EMBED : ROLE_HEAD;
    TRY(source_read(l->w, l->source, source_tensor(l->source, 0, role)));
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
                 .config = info.config, .backend = be};
    Loader l = {.m = m, .source = &source, .info = &info, .options = options};
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
