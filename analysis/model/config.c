/* config.c - from config.json's keys to a ModelConfig. */
#include "analysis/model/config.h"

#include <stdio.h>
#include <string.h>

#include "analysis/model/keys.h"
#include "kernels/filemap.h"

/* Upper ends: beyond any model, yet no product of three overflows int64. */
#define INT(key, required, min, max) \
    {#key, KEY_INT, required, offsetof(ConfigKeys, key), min, max}
#define FLAG(key) {#key, KEY_BOOL, false, offsetof(ConfigKeys, key), 0, 0}

static const Key KEYS[] = {
    INT(vocab_size, true, 1, 1 << 24),
    INT(hidden_size, true, 1, 1 << 20),
    INT(intermediate_size, true, 1, 1 << 22),
    INT(num_hidden_layers, true, 1, 1 << 14),
    INT(num_attention_heads, true, 1, 1 << 14),
    INT(num_key_value_heads, false, 1, 1 << 14),
    INT(head_dim, false, 2, 1 << 14),
    INT(max_position_embeddings, false, 1, 1 << 30),
    INT(bos_token_id, false, -1, INT32_MAX),
    {"rms_norm_eps", KEY_REAL, false, offsetof(ConfigKeys, rms_norm_eps), 0, 1},
    {"hidden_act", KEY_TEXT, false, offsetof(ConfigKeys, hidden_act), 0, 0},
    FLAG(tie_word_embeddings),
    FLAG(attention_bias),
    FLAG(mlp_bias),
};

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
        FAIL(ERR_UNSUPPORTED, "%s: %s \"%.80s\" is not supported; these are: %s", path,
             architecture ? "architecture" : "model_type", architecture ? architecture : type,
             arch_names(names));
    /* The type names the code that was meant: "diff_llama" is other code that
     * also calls its class DiffLlamaForCausalLM. */
    if (type && strcmp(type, c->arch->model_type) != 0)
        FAIL(ERR_UNSUPPORTED, "%s: model_type is \"%.80s\", expected \"%s\" with %s", path,
             type, c->arch->model_type, c->arch->architecture);
    return OK;
}

/* --- sizes --- */

static Status check_heads(ConfigKeys *k, const Arch *arch, const char *path)
{
    int64_t N = k->num_attention_heads;
    if (!k->num_key_value_heads)
        k->num_key_value_heads = N;
    if (N % k->num_key_value_heads)
        FAIL(ERR_SHAPE, "%s: num_attention_heads is %lld, expected a multiple of "
             "num_key_value_heads, %lld", path, (long long)N,
             (long long)k->num_key_value_heads);
    if (arch->pairing == PAIR_HALVES && N % 2)
        FAIL(ERR_SHAPE, "%s: num_attention_heads is %lld, expected an even number: heads of "
             "%s go in pairs", path, (long long)N, arch->architecture);
    if (!k->head_dim && k->hidden_size % N)
        FAIL(ERR_SHAPE, "%s: hidden_size is %lld, expected a multiple of num_attention_heads, "
             "%lld, where there is no head_dim", path, (long long)k->hidden_size, (long long)N);
    if (!k->head_dim)
        k->head_dim = k->hidden_size / N;
    if (k->head_dim % 2)
        FAIL(ERR_SHAPE, "%s: head_dim is %lld, expected an even number: RoPE turns pairs", path,
             (long long)k->head_dim);
    return OK;
}

/* Groups of key-value heads in canonical form. Paired halves join v heads j and
 * j + K/2; for odd K such pairs straddle the groups, and every head gets its
 * own copy of its keys and values. */
static int64_t count_groups(const ConfigKeys *k, HeadPairing pairing)
{
    int64_t K = k->num_key_value_heads;
    if (pairing == PAIR_NONE)
        return K;
    return K % 2 ? k->num_attention_heads / 2 : K / 2;
}

static Status read_activation(Activation *out, const char *name, const char *path)
{
    static const struct {
        const char *name;
        Activation  act;
    } NAMES[] = {
        {"silu", ACT_SILU},          {"swish", ACT_SILU},
        {"gelu", ACT_GELU},          {"gelu_new", ACT_GELU_TANH},
        {"relu", ACT_RELU},          {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i].name) == 0) {
            *out = NAMES[i].act;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "%s: hidden_act is \"%.80s\", expected silu, gelu, gelu_new, "
         "gelu_pytorch_tanh, gelu_fast or relu", path, name);
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
    TRY(keys_read(&c->keys, KEYS, sizeof KEYS / sizeof *KEYS, root, where));
    c->keys.mlp_bias = c->keys.mlp_bias && c->arch->mlp_bias;
    return check_heads(&c->keys, c->arch, path);
}

Status config_parse(Config *c, Arena *a, const char *path, const char *text, size_t n)
{
    const Json *root;
    *c = (Config){0};
    TRY(json_parse(&root, a, path, text, n));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: %s, expected an object", path, json_kind_name(root->kind));
    TRY(read_keys(c, root, path));
    const ConfigKeys *k = &c->keys;
    HeadPairing       pairing = c->arch->pairing;
    c->model = (ModelConfig){
        .n_layers = k->num_hidden_layers,
        .hidden = k->hidden_size,
        .inter = k->intermediate_size,
        .vocab = k->vocab_size,
        .n_maps = pairing == PAIR_NONE ? 1 : 2,
        .n_heads = k->num_attention_heads / (pairing == PAIR_NONE ? 1 : 2),
        .n_groups = count_groups(k, pairing),
        .head_dim = k->head_dim,
        .max_positions = k->max_position_embeddings,
        .norm_eps = k->rms_norm_eps,
        .head_norm_eps = c->arch->head_norm ? k->rms_norm_eps : -1,
        .tied = k->tie_word_embeddings,
        .bos = (int32_t)k->bos_token_id,
    };
    TRY(read_activation(&c->model.act, k->hidden_act, path));
    TRY(read_stops(&c->model, a, c, root, path));
    TRY(config_rope(&c->model.rope, a, c, root, path));
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
