/* source.c - opens a folder or a GGUF file and gives each of its tensors its role. */
#include "analysis/model/source.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/model/gguf_source.h"
#include "analysis/model/layout.h"
#include "analysis/model/left_over.h"
#include "analysis/model/packed_join.h"

/* --- names --- */

/* The rule's name with the numbers of layer and head for its stars. */
static const char *rule_name(char *text, const TensorRule *rule, int64_t layer, int64_t head)
{
    int64_t     number[2] = {layer, head};
    const char *from = rule->name, *star;
    size_t      at = 0;
    for (int i = 0; i < 2 && (star = strchr(from, '*')); i++) {
        at += (size_t)snprintf(text + at, SOURCE_NAME - at, "%.*s%lld", (int)(star - from), from,
                               (long long)number[i]);
        from = star + 1;
    }
    snprintf(text + at, SOURCE_NAME - at, "%s", from);
    return text;
}

static const ModelTensor *find_named(const Source *s, const TensorRule *rule, int64_t layer,
                                     int64_t head)
{
    char               name[SOURCE_NAME];
    const ModelTensor *t = checkpoint_find(s->checkpoint, rule_name(name, rule, layer, head));
    if (!t && s->config.arch->prefix)
        t = checkpoint_find(s->checkpoint, arch_bare_name(s->config.arch, name));
    return t;
}

/* --- what the model needs --- */

static int64_t dim_size(TensorDim dim, const Config *c)
{
    const ConfigKeys  *k = &c->keys;
    const ModelConfig *m = &c->model;
    int64_t            d = k->head_dim;
    switch (dim) {
    case DIM_NONE:      return 0;
    case DIM_VOCAB:     return k->vocab_size;
    case DIM_HIDDEN:    return k->hidden_size;
    case DIM_INTER:     return k->intermediate_size;
    case DIM_INTER2:    return 2 * k->intermediate_size;
    case DIM_Q:         return k->num_attention_heads * d;
    case DIM_KV:        return k->num_key_value_heads * d;
    case DIM_QKV:       return (k->num_attention_heads + 2 * k->num_key_value_heads) * d;
    case DIM_OUT:       return model_out_width(m);
    case DIM_HEAD:      return d;
    case DIM_VALUE:     return m->value_dim;
    case DIM_HEADS:     return m->n_heads;
    case DIM_EMBED:     return k->embed_dim;
    case DIM_POSITIONS: return m->n_positions;
    case DIM_INNER:     return m->inner;
    case DIM_INNER2:    return 2 * m->inner;
    case DIM_RANK:      return m->rank;
    case DIM_SSM_X:     return m->rank + 2 * m->n_states;
    case DIM_STATES:    return m->n_states;
    case DIM_TAPS:      return m->n_taps;
    case DIM_1:         return 1;
    case DIM_3:         return 3;
    }
    return 0;
}

/* Shape that the file should have; a convolution has a 1 in the middle. */
static Tensor shape_of(const Source *s, const TensorRule *rule, Dtype dtype)
{
    int64_t rows = dim_size(rule->rows, &s->config), cols = dim_size(rule->cols, &s->config);
    Tensor  t = {.dtype = dtype, .n_dims = 3, .shape = {rows, 1, cols}};
    if (rule->role == ROLE_CONV)
        return t;
    if (rule->cols == DIM_NONE)
        return tensor_1d(dtype, NULL, rows);
    return rule->transposed ? tensor_2d(dtype, NULL, cols, rows)
                            : tensor_2d(dtype, NULL, rows, cols);
}

static bool same_shape(const Tensor *a, const Tensor *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int i = 0; same && i < a->n_dims; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

static Status check_tensor(const Source *s, const ModelTensor *t, const TensorRule *rule)
{
    char   got[128], wanted[128];
    Tensor want = shape_of(s, rule, t->view.dtype);
    if (!same_shape(&t->view, &want))
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
static Status find_tensor(const ModelTensor **out, Source *s, const TensorRule *rule,
                          int64_t layer, int64_t head)
{
    char name[SOURCE_NAME];
    *out = find_named(s, rule, layer, head);
    if (!*out)
        FAIL(ERR_FORMAT, "%s: tensor %s is missing", s->path,
             rule_name(name, rule, layer, head));
    int64_t i = *out - s->checkpoint->tensors;
    s->seen[i] = true;
    s->checkpoint->tensors[i].quantizable = arch_quantizable(rule->role);
    s->checkpoint->tensors[i].linear = arch_linear(rule->role);
    s->checkpoint->tensors[i].transposed = rule->transposed;
    return check_tensor(s, *out, rule);
}

static bool on_layer(const Source *s, const TensorRule *rule, int64_t layer)
{
    return !rule->on || rule->on >> s->config.layers[layer].mixer & 1;
}

/* A tensor a layer, or, of those whose names count heads, one for each of them. */
static Status find_of_layer(Source *s, const TensorRule *rule, int64_t layer)
{
    const ModelTensor **out = &s->of_layers[layer * N_LAYER_ROLES + rule->role], *other;
    const char         *star = strchr(rule->name, '*');
    const ModelConfig  *m = &s->config.model;
    TRY(find_tensor(out, s, rule, layer, 0));
    if (!strchr(star + 1, '*'))
        return OK;
    s->by_head[rule->role] = rule;
    int64_t n = rule->role == ROLE_Q_NORM ? model_query_heads(m) : model_key_heads(m);
    for (int64_t h = 1; h < n; h++)
        TRY(find_tensor(&other, s, rule, layer, h));
    return OK;
}

const ModelTensor *source_head_tensor(const Source *s, int64_t layer, TensorRole role,
                                      int64_t head)
{
    if (!s->by_head[role])
        return head == 0 ? source_tensor(s, layer, role) : NULL;
    return find_named(s, s->by_head[role], layer, head);
}

/* Has the file a tensor of that role, in its first layer? */
static bool has_role(const Source *s, TensorRole role)
{
    const Arch *arch = s->config.arch;
    for (const TensorRule *r = arch->rules; r < arch->rules + arch->n_rules; r++)
        if (r->role == role && find_named(s, r, 0, 0))
            return true;
    return false;
}

/* What the config says nothing of: a head of its own, biases. */
static void settle_by_file(Source *s)
{
    ConfigKeys *k = &s->config.keys;
    if (k->tied_by_file)
        k->tie_word_embeddings = s->config.model.tied = !has_role(s, ROLE_HEAD);
    if (k->bias_by_file)
        k->qkv_bias = has_role(s, (TensorRole)(ROLE_BIAS + W_Q));
}

static Status find_needed(Source *s, Arena *a)
{
    const Arch *arch = s->config.arch;
    int64_t     n_layers = s->config.model.n_layers;
    ARENA_NEW(s->of_layers, a, n_layers * N_LAYER_ROLES);
    ARENA_NEW(s->seen, a, s->checkpoint->n);
    for (const TensorRule *r = arch->rules; r < arch->rules + arch->n_rules; r++) {
        if (!arch_present(r, &s->config.keys))
            continue;
        if (r->role >= N_LAYER_ROLES) {
            TRY(find_tensor(&s->of_model[r->role - N_LAYER_ROLES], s, r, 0, 0));
            continue;
        }
        for (int64_t l = 0; l < n_layers; l++)
            if (on_layer(s, r, l))
                TRY(find_of_layer(s, r, l));
    }
    return OK;
}

/* --- what is left over --- */

static Status sort_out(Source *s, Arena *a)
{
    const Checkpoint *c = s->checkpoint;
    ARENA_NEW(s->used, a, c->n);
    for (int64_t i = 0; i < c->n; i++)
        if (s->seen[i])
            s->used[s->n_used++] = c->tensors[i];
        else
            TRY(left_over_check(s, &c->tensors[i]));
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

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static Status open_folder(Source *s, Arena *a, const char *config)
{
    if (is_folder(s->path) && access(config, F_OK) != 0)
        FAIL(ERR_IO, "%s: has no config.json; if it holds weights of microsoft/unilm's code, "
             "which have none, give --layout unilm", s->path);
    s->described = "config.json";
    TRY(config_read(&s->config, a, config));
    TRY(checkpoint_open(s->checkpoint, a, s->path));
    return join_packed(s, a, config);
}

/* The layout that was named takes the place of config.json. */
static Status open_layout(Source *s, Arena *a, const Layout *l, const char *config)
{
    const char *text = NULL;
    if (!is_folder(s->path))
        FAIL(ERR_IO, "%s: is no folder, expected one of layout %s", s->path, l->name);
    if (access(config, F_OK) == 0)
        FAIL(ERR_USAGE, "%s: has a config.json: give the path without %s@", s->path, l->name);
    s->described = arena_printf(a, "layout %s", l->name);
    s->layout = layout_words(a, l);
    if (!s->described || !s->layout)
        FAIL(ERR_MEMORY, "out of memory: a layout's name");
    TRY(checkpoint_open(s->checkpoint, a, s->path));
    TRY(layout_config_text(&text, a, l, s->checkpoint));
    return config_parse(&s->config, a, s->path, text, strlen(text));
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

static Status open_files(Source *s, Arena *a, const Layout *l)
{
    const char *gguf, *config = arena_printf(a, "%s/config.json", s->path);
    if (!config)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    s->folder = s->path;
    if (l->name)
        return open_layout(s, a, l, config);
    TRY(gguf_file_find(&gguf, a, s->path));
    return gguf ? open_gguf(s, a, gguf) : open_folder(s, a, config);
}

static Status open_parts(Source *s, Arena *a, const char *path)
{
    Layout layout;
    TRY(layout_split(&layout, a, path));
    s->path = arena_text(a, layout.path, strlen(layout.path));
    if (!s->path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    TRY(open_files(s, a, &layout));
    settle_by_file(s);
    TRY(find_needed(s, a));
    return sort_out(s, a);
}

Status source_open(Source *s, Arena *a, const char *path)
{
    *s = (Source){0};
    ARENA_NEW(s->checkpoint, a, 1);
    Status status = open_parts(s, a, path);
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
