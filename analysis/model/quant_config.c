/* quant_config.c - quantization_config by tables. compressed-tensors forbids unknown
 * keys in its groups and ignores them at the top (formats.md 2.1): so do we. */
#include "analysis/model/quant_config.h"

#include <stdio.h>
#include <string.h>

#include "analysis/model/keys.h"

#define INT(type, field, key, required, min, max) \
    {key, KEY_INT, required, offsetof(type, field), min, max}
#define FLAG(type, field, key) {key, KEY_BOOL, false, offsetof(type, field), 0, 0}
#define TEXT(type, field, key, required) {key, KEY_TEXT, required, offsetof(type, field), 0, 0}
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static bool is_set(const Json *v)
{
    return v && v->kind != JSON_NULL && !(v->kind == JSON_BOOL && !v->truth);
}

static Status expect_object(const Json *v, const char *where, const char *key)
{
    if (v->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s%s is %s, expected an object", where, key,
             json_kind_name(v->kind));
    return OK;
}

static Status expect_texts(const Json *v, const char *where, const char *key)
{
    if (!v || v->kind != JSON_LIST)
        FAIL(ERR_FORMAT, "%s%s is %s, expected a list of names", where, key,
             v ? json_kind_name(v->kind) : "missing");
    for (int64_t i = 0; i < v->n; i++)
        if (v->at[i].kind != JSON_TEXT)
            FAIL(ERR_FORMAT, "%s%s[%lld] is %s, expected a name", where, key, (long long)i,
                 json_kind_name(v->at[i].kind));
    return OK;
}

/* A key we do not know may change what the weights mean. */
static Status refuse_unknown(const Json *v, const char *const *known, int n, const char *where)
{
    for (int64_t i = 0; i < v->n; i++) {
        bool found = false;
        for (int k = 0; k < n; k++)
            found = found || strcmp(v->at[i].key, known[k]) == 0;
        if (!found)
            FAIL(ERR_UNSUPPORTED, "%s%.80s is not a key of compressed-tensors that is known",
                 where, v->at[i].key);
    }
    return OK;
}

/* --- QuantizationArgs --- */

typedef struct {
    int64_t     num_bits, group_size;  // group_size 0: not given
    const char *type, *strategy;
    bool        symmetric;
} Args;

static const char *const ARGS_KNOWN[] = {
    "num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic",
    "actorder", "scale_dtype", "zp_dtype", "observer", "observer_kwargs"};

static Status read_args(Args *out, const Json *v, const char *where)
{
    static const Key KEYS[] = {
        INT(Args, num_bits, "num_bits", false, 1, 16),
        INT(Args, group_size, "group_size", false, -1, 1 << 22),
        TEXT(Args, type, "type", false),
        TEXT(Args, strategy, "strategy", false),
        FLAG(Args, symmetric, "symmetric"),
    };
    *out = (Args){.num_bits = 8, .type = "int", .symmetric = true};
    TRY(refuse_unknown(v, ARGS_KNOWN, COUNT(ARGS_KNOWN), where));
    return keys_read(out, KEYS, COUNT(KEYS), v, where);
}

/* How many inputs share a scale. */
static Status read_strategy(QuantGroup *g, const Args *args, const char *where)
{
    const char *name = args->strategy;
    if (!name)
        name = args->group_size > 0 ? "group" : args->group_size < 0 ? "channel" : "tensor";
    if (strcmp(name, "group") == 0 && args->group_size <= 0)
        FAIL(ERR_RANGE, "%sgroup_size is %lld, expected 1 or more with strategy group", where,
             (long long)args->group_size);
    if (strcmp(name, "group") != 0 && args->group_size > 0)
        FAIL(ERR_RANGE, "%sgroup_size is %lld, expected null with strategy %.80s", where,
             (long long)args->group_size, name);
    if (strcmp(name, "group") == 0)
        g->group = args->group_size;
    else if (strcmp(name, "channel") == 0)
        g->group = GROUP_ROW;
    else if (strcmp(name, "tensor") == 0)
        g->group = GROUP_MATRIX;
    else
        FAIL(ERR_UNSUPPORTED, "%sstrategy is \"%.80s\", expected group, channel or tensor",
             where, name);
    return OK;
}

/* "weight" and "static" order the columns while quantizing and leave no trace. */
static Status read_order(bool *indexed, const Json *v, const char *where)
{
    *indexed = false;
    if (!is_set(v))
        return OK;
    const char *name = v->kind == JSON_TEXT ? v->text : v->kind == JSON_BOOL ? "group" : "";
    *indexed = strcmp(name, "group") == 0 || strcmp(name, "dynamic") == 0;
    if (!*indexed && strcmp(name, "weight") != 0 && strcmp(name, "static") != 0)
        FAIL(ERR_UNSUPPORTED, "%sactorder is %s%.80s, expected null, weight or group", where,
             v->kind == JSON_TEXT ? "" : json_kind_name(v->kind), name);
    return OK;
}

static Status read_weights(QuantGroup *g, const Json *v, const char *where)
{
    Args args;
    TRY(read_args(&args, v, where));
    if (strcmp(args.type, "int") != 0)
        FAIL(ERR_UNSUPPORTED, "%stype is \"%.80s\", expected int", where, args.type);
    if (args.num_bits > 8)
        FAIL(ERR_RANGE, "%snum_bits is %lld, expected 1 to 8", where, (long long)args.num_bits);
    if (is_set(json_member(v, "dynamic")))
        FAIL(ERR_UNSUPPORTED, "%sdynamic is set, expected false for weights", where);
    if (is_set(json_member(v, "block_structure")))
        FAIL(ERR_UNSUPPORTED, "%sblock_structure is set, expected null", where);
    g->bits = args.num_bits;
    g->symmetric = args.symmetric;
    TRY(read_strategy(g, &args, where));
    TRY(read_order(&g->indexed, json_member(v, "actorder"), where));
    if (g->indexed && g->group <= 0)
        FAIL(ERR_UNSUPPORTED, "%sactorder is group, expected with strategy group only", where);
    return OK;
}

/* --- config groups --- */

static Status read_format(bool *bytes, const char *name, const char *where)
{
    *bytes = strcmp(name, "int-quantized") == 0 || strcmp(name, "naive-quantized") == 0;
    if (*bytes || strcmp(name, "pack-quantized") == 0)
        return OK;
    FAIL(ERR_UNSUPPORTED, "%sformat is \"%.80s\", expected pack-quantized, int-quantized or "
         "naive-quantized", where, name);
}

static bool is_true(const Json *v)
{
    return v && v->kind == JSON_BOOL && v->truth;
}

static Status read_values(QuantValues *out, const Json *group, const char *key,
                          const char *where)
{
    const Json *v = json_member(group, key);
    char        inside[KEYS_WHERE];
    Args        args;
    if (!v || v->kind == JSON_NULL)
        return OK;
    TRY(expect_object(v, where, key));
    snprintf(inside, sizeof inside, "%.900s%s.", where, key);
    TRY(read_args(&args, v, inside));
    bool by_token = args.strategy && strcmp(args.strategy, "token") == 0;
    bool by_tensor = args.strategy ? strcmp(args.strategy, "tensor") == 0 : !args.group_size;
    bool width = args.num_bits == 8 || args.num_bits == 6 || args.num_bits == 4;
    out->bits = args.num_bits;
    out->scale = by_token ? ACTS_TOKEN : ACTS_TENSOR;
    out->fits = width && strcmp(args.type, "int") == 0 && args.symmetric &&
                (by_token || by_tensor) && is_true(json_member(v, "dynamic"));
    return OK;
}

static Status read_group(QuantGroup *g, const Json *v, const char *format, const char *where)
{
    static const char *const KNOWN[] = {"targets", "weights", "input_activations",
                                        "output_activations", "format"};
    static const Key         FORMAT = {"format", KEY_TEXT, false, 0, 0, 0};
    const Json              *weights = json_member(v, "weights");
    char                     inside[KEYS_WHERE];
    TRY(refuse_unknown(v, KNOWN, COUNT(KNOWN), where));
    g->name = v->key;
    g->targets = json_member(v, "targets");
    TRY(expect_texts(g->targets, where, "targets"));
    TRY(read_values(&g->inputs, v, "input_activations", where));
    TRY(read_values(&g->outputs, v, "output_activations", where));
    if (!weights || weights->kind == JSON_NULL)
        return OK;
    TRY(expect_object(weights, where, "weights"));
    TRY(keys_read(&format, &FORMAT, 1, v, where));
    TRY(read_format(&g->bytes, format, where));
    snprintf(inside, sizeof inside, "%.900sweights.", where);
    return read_weights(g, weights, inside);
}

/* Rotations and sparse layouts change what the numbers are. */
static Status refuse_part(const Json *v, const char *key, const char *where)
{
    const Json *part = json_member(v, key);
    const Json *format = json_member(part, "format");
    bool        dense = format && format->kind == JSON_TEXT && !strcmp(format->text, "dense");
    if (!part || part->kind == JSON_NULL || (part->kind == JSON_OBJECT && !part->n) || dense)
        return OK;
    FAIL(ERR_UNSUPPORTED, "%s%s is set, expected none", where, key);
}

/* Bits of values that some group rounds, 0 for none; *fits: a RunQuant says all of it. */
static int64_t values_bits(bool *fits, const QuantConfig *q)
{
    const QuantValues *first = &q->groups[0].inputs;
    int64_t            bits = 0;
    *fits = q->n_groups > 0;
    for (int64_t i = 0; i < q->n_groups; i++) {
        const QuantGroup *g = &q->groups[i];
        bits = g->inputs.bits ? g->inputs.bits : g->outputs.bits ? g->outputs.bits : bits;
        *fits = *fits && g->bits && g->inputs.fits && !g->outputs.bits &&
                g->inputs.bits == first->bits && g->inputs.scale == first->scale;
    }
    return bits;
}

static Status settle_values(QuantConfig *q, Arena *a, const char *format)
{
    bool        fits;
    int64_t     bits = values_bits(&fits, q);
    const char *of = fits && q->groups[0].inputs.scale == ACTS_TENSOR ? "sequence" : "token";
    if (!bits)
        q->summary = arena_printf(a, "compressed-tensors, %s", format);
    else if (fits)
        q->summary = arena_printf(a, "compressed-tensors, %s; inputs of %lld bits by %s", format,
                                  (long long)bits, of);
    else
        q->summary = arena_printf(a, "compressed-tensors, %s; its quantization of activations, "
                                  "%lld bits, is not applied", format, (long long)bits);
    if (bits && fits)
        q->run = (RunQuant){.acts = (int)bits, .act_scale = q->groups[0].inputs.scale,
                            .act_wide = true};
    if (!q->summary)
        FAIL(ERR_MEMORY, "out of memory: a quantization_config");
    return OK;
}

static Status read_compressed(QuantConfig *q, Arena *a, const Json *v, const char *where)
{
    static const Key FORMAT = {"format", KEY_TEXT, true, 0, 0, 0};
    const Json      *groups = json_member(v, "config_groups");
    const Json      *ignore = json_member(v, "ignore");
    const char      *format = NULL;
    TRY(keys_read(&format, &FORMAT, 1, v, where));
    TRY(refuse_part(v, "transform_config", where));
    TRY(refuse_part(v, "sparsity_config", where));
    if (!groups)
        FAIL(ERR_FORMAT, "%sconfig_groups is missing", where);
    TRY(expect_object(groups, where, "config_groups"));
    if (ignore && ignore->kind != JSON_NULL) {
        TRY(expect_texts(ignore, where, "ignore"));
        q->ignore = ignore;
    }
    q->method = QUANT_COMPRESSED;
    ARENA_NEW(q->groups, a, groups->n);
    for (q->n_groups = 0; q->n_groups < groups->n; q->n_groups++) {
        const Json *group = &groups->at[q->n_groups];
        char        inside[KEYS_WHERE];
        if (group->kind != JSON_OBJECT)
            FAIL(ERR_UNSUPPORTED, "%sconfig_groups.%.80s is %s, expected an object with "
                 "targets and weights", where, group->key, json_kind_name(group->kind));
        snprintf(inside, sizeof inside, "%.800sconfig_groups.%.80s.", where, group->key);
        TRY(read_group(&q->groups[q->n_groups], group, format, inside));
    }
    return settle_values(q, a, format);
}

/* --- GPTQ --- */

typedef struct {
    int64_t     bits, group_size;
    const char *format, *checkpoint_format, *pack_dtype;
    bool        desc_act, sym, is_marlin_format;
} GptqKeys;

static const Key GPTQ_KEYS[] = {
    INT(GptqKeys, bits, "bits", true, 1, 16),
    INT(GptqKeys, group_size, "group_size", true, -1, 1 << 22),
    TEXT(GptqKeys, format, "format", false),
    TEXT(GptqKeys, checkpoint_format, "checkpoint_format", false),
    TEXT(GptqKeys, pack_dtype, "pack_dtype", false),
    FLAG(GptqKeys, desc_act, "desc_act"),
    FLAG(GptqKeys, sym, "sym"),
    FLAG(GptqKeys, is_marlin_format, "is_marlin_format"),
};

static Status check_gptq(const GptqKeys *k, const char *where)
{
    if (k->bits != 2 && k->bits != 3 && k->bits != 4 && k->bits != 8)
        FAIL(ERR_UNSUPPORTED, "%sbits is %lld, expected 2, 3, 4 or 8", where,
             (long long)k->bits);
    if (k->group_size == 0)
        FAIL(ERR_RANGE, "%sgroup_size is 0, expected -1 or 1 and more", where);
    if (k->is_marlin_format)
        FAIL(ERR_UNSUPPORTED, "%sis_marlin_format is true, expected false", where);
    if (strcmp(k->pack_dtype, "int32") != 0)
        FAIL(ERR_UNSUPPORTED, "%spack_dtype is \"%.80s\", expected int32", where,
             k->pack_dtype);
    if (k->format && k->checkpoint_format && strcmp(k->format, k->checkpoint_format) != 0)
        FAIL(ERR_FORMAT, "%sformat is \"%.80s\", but checkpoint_format is \"%.80s\"", where,
             k->format, k->checkpoint_format);
    return OK;
}

static Status read_gptq(QuantConfig *q, Arena *a, const Json *v, const char *where)
{
    GptqKeys    k = {.sym = true, .pack_dtype = "int32"};
    const Json *dynamic = json_member(v, "dynamic");
    TRY(keys_read(&k, GPTQ_KEYS, COUNT(GPTQ_KEYS), v, where));
    TRY(check_gptq(&k, where));
    const char *format = k.checkpoint_format ? k.checkpoint_format : k.format;
    if (!format)
        format = "gptq";
    if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        FAIL(ERR_UNSUPPORTED, "%scheckpoint_format is \"%.80s\", expected gptq or gptq_v2",
             where, format);
    q->method = QUANT_GPTQ;
    q->bits = k.bits;
    q->group = k.group_size < 0 ? GROUP_ROW : k.group_size;
    q->symmetric = k.sym;
    q->indexed = k.desc_act;
    q->zeros_less = strcmp(format, "gptq") == 0;
    q->exceptions = dynamic && dynamic->kind == JSON_OBJECT && dynamic->n;
    q->summary = arena_printf(a, "GPTQ, %s", format);
    if (!q->summary)
        FAIL(ERR_MEMORY, "out of memory: a quantization_config");
    return OK;
}

/* --- either --- */

static Status read_method(QuantConfig *q, Arena *a, const Json *v, const char *fallback,
                          const char *where)
{
    static const Key METHOD = {"quant_method", KEY_TEXT, false, 0, 0, 0};
    const char      *method = fallback;
    TRY(keys_read(&method, &METHOD, 1, v, where));
    if (!method)
        FAIL(ERR_FORMAT, "%squant_method is missing", where);
    if (strcmp(method, "compressed-tensors") == 0)
        return read_compressed(q, a, v, where);
    if (strcmp(method, "gptq") == 0)
        return read_gptq(q, a, v, where);
    FAIL(ERR_UNSUPPORTED, "%squant_method is \"%.80s\", expected compressed-tensors or gptq",
         where, method);
}

Status quant_config_read(QuantConfig *q, Arena *a, const Json *v, const char *path)
{
    char where[KEYS_WHERE];
    *q = (QuantConfig){0};
    if (!v || v->kind == JSON_NULL)
        return OK;
    if (v->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: quantization_config is %s, expected an object", path,
             json_kind_name(v->kind));
    snprintf(where, sizeof where, "%.700s: quantization_config.", path);
    return read_method(q, a, v, NULL, where);
}

Status quant_config_file(QuantConfig *q, Arena *a, const char *path)
{
    char        where[KEYS_WHERE];
    const Json *root;
    *q = (QuantConfig){0};
    TRY(json_read(&root, a, path));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: %s, expected an object", path, json_kind_name(root->kind));
    snprintf(where, sizeof where, "%.700s: ", path);
    return read_method(q, a, root, "gptq", where);
}
