/* source.c - opens a folder or a GGUF file and gives each of its tensors its role. */
#include "analysis/model/source.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "analysis/model/gguf_source.h"
#include "analysis/model/packed_join.h"

enum { NAME_BYTES = 160 };

/* --- names --- */

/* The rule's name with the layer's number for its star. */
static const char *rule_name(char *text, const TensorRule *rule, int64_t layer)
{
    const char *star = strchr(rule->name, '*');
    if (star)
        snprintf(text, NAME_BYTES, "%.*s%lld%s", (int)(star - rule->name), rule->name,
                 (long long)layer, star + 1);
    else
        snprintf(text, NAME_BYTES, "%s", rule->name);
    return text;
}

/* Is name the rule's, for any number of a layer? */
static bool rule_matches(const TensorRule *rule, const char *name)
{
    const char *star = strchr(rule->name, '*');
    if (!star)
        return strcmp(rule->name, name) == 0;
    size_t before = (size_t)(star - rule->name);
    if (strncmp(rule->name, name, before) != 0)
        return false;
    name += before;
    return *name && strcmp(name + strspn(name, "0123456789"), star + 1) == 0;
}

/* --- what the model needs --- */

static int64_t dim_size(TensorDim dim, const ConfigKeys *k)
{
    switch (dim) {
    case DIM_VOCAB:
        return k->vocab_size;
    case DIM_HIDDEN:
        return k->hidden_size;
    case DIM_INTER:
        return k->intermediate_size;
    case DIM_Q:
        return k->num_attention_heads * k->head_dim;
    case DIM_KV:
        return k->num_key_value_heads * k->head_dim;
    case DIM_HEAD:
        return k->head_dim;
    default:
        return 0;
    }
}

static Status check_tensor(const Source *s, const ModelTensor *t, const TensorRule *rule)
{
    char   got[128], wanted[128];
    Tensor want = tensor_1d(t->view.dtype, NULL, dim_size(rule->rows, &s->config.keys));
    if (rule->cols != DIM_NONE)
        want = tensor_2d(want.dtype, NULL, want.shape[0],
                         dim_size(rule->cols, &s->config.keys));
    if (t->view.n_dims != want.n_dims || t->view.shape[0] != want.shape[0] ||
        t->view.shape[1] != want.shape[1])
        FAIL(ERR_SHAPE, "%s/%s: tensor %s has shape %s, expected %s from %s", s->folder,
             t->file, t->name, tensor_shape_text(&t->view, got),
             tensor_shape_text(&want, wanted), s->described);
    Dtype d = t->view.dtype;
    if (d != DTYPE_F32 && d != DTYPE_F16 && d != DTYPE_BF16)
        FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s is %s, expected F32, F16 or BF16", s->folder,
             t->file, t->name, dtype_name(d));
    return OK;
}

/* Finds the tensor of a rule and marks it as seen. */
static Status find_tensor(const ModelTensor **out, Source *s, bool *seen,
                          const TensorRule *rule, int64_t layer)
{
    char name[NAME_BYTES];
    *out = checkpoint_find(s->checkpoint, rule_name(name, rule, layer));
    if (!*out)
        FAIL(ERR_FORMAT, "%s: tensor %s is missing", s->path, name);
    int64_t i = *out - s->checkpoint->tensors;
    seen[i] = true;
    s->checkpoint->tensors[i].quantizable = arch_quantizable(rule->role);
    return check_tensor(s, *out, rule);
}

static Status find_needed(Source *s, Arena *a, bool *seen)
{
    const Arch *arch = s->config.arch;
    int64_t     n_layers = s->config.model.n_layers;
    ARENA_NEW(s->of_layers, a, n_layers * N_LAYER_ROLES);
    for (const TensorRule *r = arch->rules; r < arch->rules + arch->n_rules; r++) {
        if (!arch_present(r, &s->config.keys))
            continue;
        if (r->role >= N_LAYER_ROLES) {
            TRY(find_tensor(&s->of_model[r->role - N_LAYER_ROLES], s, seen, r, 0));
            continue;
        }
        for (int64_t l = 0; l < n_layers; l++)
            TRY(find_tensor(&s->of_layers[l * N_LAYER_ROLES + r->role], s, seen, r, l));
    }
    return OK;
}

/* --- what is left over --- */

/* A tensor that nobody asked for: harmless, or another model than we think. */
static Status check_left_over(const Source *s, const ModelTensor *t)
{
    const Arch *arch = s->config.arch;
    if (arch_ignores(t->name))
        return OK;
    for (const TensorRule *r = arch->rules; r < arch->rules + arch->n_rules; r++) {
        if (!rule_matches(r, t->name))
            continue;
        if (r->when == WHEN_UNTIED)
            return OK;  // a copy of the embedding: tied models may ship it
        if (arch_present(r, &s->config.keys))
            FAIL(ERR_SHAPE, "%s/%s: tensor %s, but %s has num_hidden_layers %lld", s->folder,
                 t->file, t->name, s->described, (long long)s->config.model.n_layers);
        FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s, but %s has no %s", s->folder, t->file,
             t->name, s->described, r->when == WHEN_MLP_BIAS ? "mlp_bias" : "attention_bias");
    }
    FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s is not part of %s", s->folder, t->file, t->name,
         arch->architecture);
}

static Status sort_out(Source *s, Arena *a, const bool *seen)
{
    const Checkpoint *c = s->checkpoint;
    ARENA_NEW(s->used, a, c->n);
    for (int64_t i = 0; i < c->n; i++)
        if (seen[i])
            s->used[s->n_used++] = c->tensors[i];
        else
            TRY(check_left_over(s, &c->tensors[i]));
    return OK;
}

/* --- opening --- */

/* Matrices of few bits become tensors like others. Older files of GPTQ have their
 * config beside config.json. */
static Status join_packed(Source *s, Arena *a, const char *config)
{
    QuantConfig *q = &s->config.quant;
    const char  *file = arena_printf(a, "%s/quantize_config.json", s->path);
    if (!file)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    if (q->method == QUANT_NONE && access(file, F_OK) == 0)
        TRY(quant_config_file(q, a, file));
    else
        file = config;
    return packed_join(s->checkpoint, a, q, s->path, file);
}

static Status open_folder(Source *s, Arena *a)
{
    char *config = arena_printf(a, "%s/config.json", s->path);
    if (!config)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    s->folder = s->path;
    s->described = "config.json";
    TRY(config_read(&s->config, a, config));
    TRY(checkpoint_open(s->checkpoint, a, s->path));
    return join_packed(s, a, config);
}

static Status open_gguf(Source *s, Arena *a, const char *file)
{
    const char *slash = strrchr(file, '/');
    s->folder = slash ? arena_text(a, file, (size_t)(slash - file)) : ".";
    s->described = "its GGUF header";
    if (!s->folder)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    return gguf_source_open(&s->config, s->checkpoint, a, file);
}

static Status open_parts(Source *s, Arena *a)
{
    bool       *seen;
    const char *gguf;
    TRY(gguf_file_find(&gguf, a, s->path));
    TRY(gguf ? open_gguf(s, a, gguf) : open_folder(s, a));
    ARENA_NEW(seen, a, s->checkpoint->n);
    TRY(find_needed(s, a, seen));
    return sort_out(s, a, seen);
}

Status source_open(Source *s, Arena *a, const char *path)
{
    *s = (Source){0};
    s->path = arena_text(a, path, strlen(path));
    ARENA_NEW(s->checkpoint, a, 1);
    if (!s->path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    Status status = open_parts(s, a);
    if (status != OK)
        source_close(s);
    return status;
}

void source_close(Source *s)
{
    if (s->checkpoint)
        checkpoint_close(s->checkpoint);
    *s = (Source){0};
}

const ModelTensor *source_tensor(const Source *s, int64_t layer, TensorRole role)
{
    if (role >= N_LAYER_ROLES)
        return s->of_model[role - N_LAYER_ROLES];
    return s->of_layers[layer * N_LAYER_ROLES + role];
}

/* --- order of the heads --- */

int64_t source_n_heads(const Config *c, WeightKind kind)
{
    const ModelConfig *m = &c->model;
    return (kind == W_Q ? m->n_heads : m->n_groups) * m->n_maps;
}

int64_t source_head(const Config *c, WeightKind kind, int64_t j)
{
    const ModelConfig *m = &c->model;
    int64_t            N = c->keys.num_attention_heads, K = c->keys.num_key_value_heads;
    if (c->arch->pairing == PAIR_NONE)
        return j;
    /* Pairing by halves: map (of v: half) j % 2 of differential head or group
     * j / 2 lies half of all heads further on. */
    if (kind == W_Q)
        return j / 2 + j % 2 * m->n_heads;
    if (K % 2 == 0)
        return j / 2 + j % 2 * (K / 2);
    /* One group a head: the key-value head that its query head uses. */
    return (j / 2 + j % 2 * m->n_heads) / (N / K);
}
