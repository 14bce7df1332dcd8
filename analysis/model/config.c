/* config.c - from config.json's keys to a ModelConfig. */
#include "analysis/model/config.h"

#include <stdio.h>
#include <string.h>

#include "analysis/model/keys.h"
#include "kernels/filemap.h"

/* --- which model --- */

/* architectures[0], or NULL where the file has none. */
static Status read_architecture(const char **out, const Json *root, const char *path)
{
    const Json *list = json_member(root, "architectures");
    *out = NULL;
    if (!list || list->kind == JSON_NULL || (list->kind == JSON_LIST && list->n == 0))
        return OK;
    if (list->kind != JSON_LIST || list->at[0].kind != JSON_TEXT)
        FAIL(ERR_FORMAT, "%s: architectures is %s, expected a list of names", path,
             json_kind_name(list->kind == JSON_LIST ? list->at[0].kind : list->kind));
    *out = list->at[0].text;
    return OK;
}

/* Why a name that looks known is not. */
static const char *remark_on(const char *type)
{
    return type && strcmp(type, "diff_llama") == 0
               ? " (two different codes have model_type diff_llama, and nothing in the file tells "
                 "them apart)"
               : "";
}

static Status find_arch(Config *c, const Json *root, const char *path)
{
    static const Key TYPE = {"model_type", KEY_TEXT, false, 0, 0, 0};
    const char      *architecture, *type = NULL;
    char             where[KEYS_WHERE], names[ARCH_NAMES];
    snprintf(where, sizeof where, "%s: ", path);
    TRY(read_architecture(&architecture, root, path));
    TRY(keys_read(&type, &TYPE, 1, root, where));
    if (!architecture && !type)
        FAIL(ERR_FORMAT, "%s: architectures and model_type are missing", path);
    c->arch = arch_find(architecture, type);
    if (!c->arch)
        FAIL(ERR_UNSUPPORTED, "%s: %s \"%.80s\" is not supported%s; these are: %s", path,
             architecture ? "architecture" : "model_type", architecture ? architecture : type,
             remark_on(type), arch_names(names));
    /* The type names the code that was meant: "diff_llama" is other code that
     * also calls its class DiffLlamaForCausalLM. */
    if (type && !arch_has_type(c->arch, type))
        FAIL(ERR_UNSUPPORTED, "%s: model_type is \"%.80s\", expected \"%s\" with %s%s", path,
             type, c->arch->model_type, c->arch->architecture, remark_on(type));
    return OK;
}

/* What the architecture's files call that member of ConfigKeys. */
static const char *key_of(const Arch *arch, size_t offset)
{
    for (int i = 0; i < arch->n_keys; i++)
        if (arch->keys[i].offset == offset)
            return arch->keys[i].name;
    return "";
}

/* --- sizes --- */

static Status check_heads(ConfigKeys *k, const Arch *arch, const char *path)
{
    int64_t N = k->num_attention_heads;
    if (!k->num_key_value_heads)
        k->num_key_value_heads = N;
    int64_t K = k->num_key_value_heads;
    if (N % K && !k->num_noise_heads)
        FAIL(ERR_SHAPE, "%s: num_attention_heads is %lld, expected a multiple of "
             "num_key_value_heads, %lld", path, (long long)N, (long long)K);
    if (arch->pairing != PAIR_NONE && N % 2 && !k->num_noise_heads)
        FAIL(ERR_SHAPE, "%s: num_attention_heads is %lld, expected an even number: heads of "
             "%s go in pairs", path, (long long)N, arch->architecture);
    if (arch->pairing == PAIR_NEXT && K % 2)
        FAIL(ERR_SHAPE, "%s: num_key_value_heads is %lld, expected an even number: heads of "
             "%s go in pairs", path, (long long)K, arch->architecture);
    if (arch->pairing == PAIR_SHARED && N % (2 * K))
        FAIL(ERR_SHAPE, "%s: num_attention_heads is %lld, expected a multiple of twice "
             "num_key_value_heads, %lld", path, (long long)N, (long long)K);
    if (!k->head_dim && k->hidden_size % N)
        FAIL(ERR_SHAPE, "%s: hidden_size is %lld, expected a multiple of num_attention_heads, "
             "%lld, where there is no head_dim", path, (long long)k->hidden_size, (long long)N);
    if (!k->head_dim)
        k->head_dim = k->hidden_size / N;
    if (arch->defaults.rotary == 1 && k->head_dim % 2)
        FAIL(ERR_SHAPE, "%s: head_dim is %lld, expected an even number: RoPE turns pairs", path,
             (long long)k->head_dim);
    return OK;
}

/* Code that takes hidden_size / num_attention_heads may still turn as many dims as head_dim
 * says. */
static Status check_head_dim(const Config *c, const Json *root, const char *path)
{
    const Json *d = json_member(root, "head_dim");
    if (!d || d->kind == JSON_NULL)
        return OK;
    if (d->kind != JSON_NUMBER || !d->whole || d->integer != c->keys.head_dim)
        FAIL(ERR_UNSUPPORTED, "%s: head_dim is %s%.15g, but %s takes hidden_size / "
             "num_attention_heads, %lld", path, d->kind == JSON_NUMBER ? "" : "no number, ",
             d->number, c->arch->architecture, (long long)c->keys.head_dim);
    return OK;
}

/* Groups of key-value heads in canonical form. Paired halves join v heads j and
 * j + K/2; for odd K such pairs straddle the groups, and every head gets its
 * own copy of its keys and values. */
static int64_t count_groups(const ConfigKeys *k, HeadPairing pairing)
{
    int64_t K = k->num_key_value_heads;
    if (pairing == PAIR_NONE || pairing == PAIR_SHARED)
        return K;
    return K % 2 ? k->num_attention_heads / 2 : K / 2;
}

static Status find_activation(Activation *out, const char *name, const char *key,
                              const char *path)
{
    static const struct {
        const char *name;
        Activation  act;
    } NAMES[] = {
        {"silu", ACT_SILU},          {"swish", ACT_SILU},
        {"gelu", ACT_GELU},          {"gelu_new", ACT_GELU_TANH},
        {"relu", ACT_RELU},          {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH}, {"gelu_accurate", ACT_GELU_TANH},
        {"gelu_python_tanh", ACT_GELU_TANH},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i].name) == 0) {
            *out = NAMES[i].act;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "%s: %s is \"%.80s\", expected silu, gelu, gelu_new, "
         "gelu_pytorch_tanh, gelu_fast or relu", path, key, name);
}

/* PolyNorm is of the Motif models alone; they have tensors for it. */
static Status read_activation(ModelConfig *m, const Config *c, const char *path)
{
    const char *name = c->keys.hidden_act;
    m->poly = strcmp(c->arch->defaults.hidden_act, "poly_norm") == 0 &&
              strcmp(name, "poly_norm") == 0;
    return m->poly ? OK : find_activation(&m->act, name, key_of(c->arch, offsetof(ConfigKeys,
                                          hidden_act)), path);
}

/* --- end tokens: one, a list, or none --- */

static Status read_stop(int32_t *out, const Json *v, const char *path)
{
    if (v->kind != JSON_NUMBER || !v->whole)
        FAIL(ERR_FORMAT, "%s: eos_token_id is %s, expected a whole number or a list of them",
             path, v->kind == JSON_NUMBER ? "a fraction" : json_kind_name(v->kind));
    if (v->integer < -1 || v->integer > INT32_MAX)
        FAIL(ERR_RANGE, "%s: eos_token_id is %lld, expected -1 to %d", path,
             (long long)v->integer, INT32_MAX);
    *out = (int32_t)v->integer;
    return OK;
}

static Status read_stops(ModelConfig *m, Arena *a, const Config *c, const Json *root,
                         const char *path)
{
    const Json *v = json_member(root, "eos_token_id");
    bool        list = v && v->kind == JSON_LIST;
    int32_t    *stops;
    m->n_stops = list ? v->n : 1;
    ARENA_NEW(stops, a, m->n_stops);
    if (!v)
        stops[0] = (int32_t)c->keys.eos_token_id;
    else if (v->kind == JSON_NULL)
        stops[0] = -1;
    else
        for (int64_t i = 0; i < m->n_stops; i++)
            TRY(read_stop(&stops[i], list ? &v->at[i] : v, path));
    m->stops = stops;
    m->eos = m->n_stops ? stops[0] : -1;
    if (m->eos < 0)
        m->n_stops = 0;
    return OK;
}

/* --- all of it --- */

static Status read_keys(Config *c, const Json *root, const char *path)
{
    char where[KEYS_WHERE];
    snprintf(where, sizeof where, "%s: ", path);
    TRY(find_arch(c, root, path));
    c->keys = c->arch->defaults;
    TRY(keys_read(&c->keys, c->arch->keys, c->arch->n_keys, root, where));
    const Json *kv = json_member(root, "num_key_value_heads");
    const Json *tie = json_member(root, "tie_word_embeddings");
    if (tie && tie->kind == JSON_BOOL)
        c->keys.tied_by_file = false;
    if (kv && kv->kind == JSON_NULL)
        c->keys.num_key_value_heads = 0;   // as many as heads, whatever the class's own number
    if (!c->keys.intermediate_size)
        c->keys.intermediate_size = 4 * c->keys.hidden_size;   // GPT-2
    if (!c->keys.embed_dim)
        c->keys.embed_dim = c->keys.hidden_size;
    TRY(check_heads(&c->keys, c->arch, path));
    return check_head_dim(c, root, path);
}

/* Every layer attends to all that is before it; the rows of the table know better. */
static Status plain_layers(Config *c, Arena *a)
{
    ARENA_NEW(c->layers, a, c->model.n_layers);
    for (int64_t i = 0; i < c->model.n_layers; i++)
        c->layers[i] = (LayerConfig){.keys_of = i, .scale = 1};
    c->model.layers = c->layers;
    return OK;
}

static ModelConfig sizes_of(const ConfigKeys *k, const Arch *arch)
{
    bool plain = arch->pairing == PAIR_NONE, shared = arch->pairing == PAIR_SHARED;
    return (ModelConfig){
        .n_layers = k->num_hidden_layers,
        .hidden = k->hidden_size,
        .inter = k->intermediate_size,
        .vocab = k->vocab_size,
        .n_maps = plain ? 1 : 2,
        .n_heads = k->num_attention_heads / (plain ? 1 : 2),
        .n_groups = count_groups(k, arch->pairing),
        .n_signals = 1,
        .shared_keys = shared,
        .head_dim = k->head_dim,
        .value_dim = plain || shared ? k->head_dim : 2 * k->head_dim,
        .max_positions = k->max_position_embeddings,
        .n_positions = k->learned_positions ? k->max_position_embeddings + k->first_position : 0,
        .first_position = k->first_position,
        .residual = k->parallel ? RESIDUAL_PARALLEL : RESIDUAL_PRE,
        .norm_eps = k->norm_eps,
        .centred = arch->layer_norm,
        .qk_norm = k->qk_norm,
        .head_norm_eps = -1,
        .lambda_rows = shared,
        .gated = !arch->plain_mlp,
        .tied = k->tie_word_embeddings,
        .bos = (int32_t)k->bos_token_id,
    };
}

Status config_parse(Config *c, Arena *a, const char *path, const char *text, size_t n)
{
    const Json *root;
    *c = (Config){0};
    TRY(json_parse(&root, a, path, text, n));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: %s, expected an object", path, json_kind_name(root->kind));
    TRY(read_keys(c, root, path));
    c->model = sizes_of(&c->keys, c->arch);
    TRY(plain_layers(c, a));
    TRY(read_activation(&c->model, c, path));
    TRY(read_stops(&c->model, a, c, root, path));
    TRY(config_rope(&c->model.rope, a, c, root, path));
    if (c->arch->fit)
        TRY(c->arch->fit(c, a, root, path));
    TRY(quant_config_read(&c->quant, a, json_member(root, "quantization_config"), path));
    c->text = arena_text(a, text, n);
    if (!c->text)
        FAIL(ERR_MEMORY, "out of memory: %zu bytes of %s", n, path);
    return OK;
}

Status config_read(Config *c, Arena *a, const char *path)
{
    FileMap map;
    TRY(filemap_open(&map, path));
    Status s = config_parse(c, a, path, (const char *)map.data, map.size);
    filemap_close(&map);
    return s;
}
