/* config_rope.c - the RoPE part of config.json.
 * v4 has rope_theta beside rope_scaling, v5 puts all into rope_parameters. As
 * in transformers, rope_scaling wins where both are filled, and what is inside
 * the object wins over the same key beside it, except for the original length. */
#include "analysis/model/config.h"

#include <stdio.h>
#include <string.h>

#include "analysis/model/keys.h"

typedef struct {
    double  theta, partial, factor, attention_factor, beta_fast, beta_slow;
    double  low_freq_factor, high_freq_factor, mscale, mscale_all_dim;
    int64_t original;
    bool    truncate;
} RopeKeys;

#define REAL(name, field, min, max) {name, KEY_REAL, false, offsetof(RopeKeys, field), min, max}

/* Inside the object. The first three may stand beside it as well: two of them are read with
 * the architecture's other keys. */
static const Key KEYS[] = {
    REAL("rope_theta", theta, 2, 1e15),
    REAL("partial_rotary_factor", partial, 1e-6, 1),
    {"original_max_position_embeddings", KEY_INT, false, offsetof(RopeKeys, original), 2,
     1 << 30},
    REAL("factor", factor, 1e-3, 1e6),
    REAL("attention_factor", attention_factor, 1e-6, 1e6),
    REAL("beta_fast", beta_fast, 0, 1e6),
    REAL("beta_slow", beta_slow, 0, 1e6),
    REAL("low_freq_factor", low_freq_factor, 1e-6, 1e6),
    REAL("high_freq_factor", high_freq_factor, 1e-6, 1e6),
    REAL("mscale", mscale, 0, 1e6),
    REAL("mscale_all_dim", mscale_all_dim, 0, 1e6),
    {"truncate", KEY_BOOL, false, offsetof(RopeKeys, truncate), 0, 0},
};
enum { ORIGINAL = 2, N_KEYS = sizeof KEYS / sizeof *KEYS };

static const struct {
    const char *name;
    RopeKind    kind;
    bool        needs_factor;
} KINDS[] = {
    {"default", ROPE_DEFAULT, false}, {"linear", ROPE_LINEAR, true},
    {"dynamic", ROPE_DYNAMIC, true},  {"yarn", ROPE_YARN, false},
    {"llama3", ROPE_LLAMA3, true},    {"longrope", ROPE_LONGROPE, false},
};

static bool is_filled(const Json *v)
{
    return v && v->kind != JSON_NULL && !(v->kind == JSON_OBJECT && v->n == 0);
}

/* The object with the parameters, NULL where there is none, and its name. */
static Status find_object(const Json **out, const Json *root, const char **name,
                          const char *path)
{
    *name = is_filled(json_member(root, "rope_scaling")) ? "rope_scaling" : "rope_parameters";
    const Json *v = json_member(root, *name);
    *out = is_filled(v) ? v : NULL;
    if (!*out)
        return OK;
    if (v->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: %s is %s, expected an object", path, *name,
             json_kind_name(v->kind));
    for (int64_t i = 0; i < v->n; i++)
        if (v->at[i].kind == JSON_OBJECT)
            FAIL(ERR_UNSUPPORTED, "%s: %s.%.80s is an object: one RoPE for each kind of layer "
                 "is not supported", path, *name, v->at[i].key);
    return OK;
}

static Status read_kind(RopeKind *out, bool *needs_factor, const Json *object,
                        const char *where)
{
    static const Key TYPES[] = {{"type", KEY_TEXT, false, 0, 0, 0},
                                {"rope_type", KEY_TEXT, false, 0, 0, 0}};  // the later one wins
    const char *name = "default";
    TRY(keys_read(&name, TYPES, 2, object, where));
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(name, KINDS[i].name) == 0) {
            *out = KINDS[i].kind;
            *needs_factor = KINDS[i].needs_factor;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "%srope_type is \"%.80s\", expected default, linear, dynamic, yarn, "
         "llama3 or longrope", where, name);
}

/* A list of n positive numbers. */
static Status read_factors(const double **out, Arena *a, const Json *object, const char *key,
                           int64_t n, const char *where)
{
    const Json *v = json_member(object, key);
    double     *x;
    if (!v)
        FAIL(ERR_FORMAT, "%s%s is missing", where, key);
    if (v->kind != JSON_LIST)
        FAIL(ERR_FORMAT, "%s%s is %s, expected a list", where, key, json_kind_name(v->kind));
    if (v->n != n)
        FAIL(ERR_SHAPE, "%s%s has %lld numbers, expected %lld", where, key, (long long)v->n,
             (long long)n);
    ARENA_NEW(x, a, n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = v->at[i].number;
        if (v->at[i].kind != JSON_NUMBER || !(x[i] >= 1e-6 && x[i] <= 1e6))
            FAIL(ERR_RANGE, "%s%s[%lld] is not a number from 1e-6 to 1e6", where, key,
                 (long long)i);
    }
    *out = x;
    return OK;
}

/* What a kind cannot do without. */
static Status check_kind(const Rope *r, bool needs_factor, const char *where)
{
    if (needs_factor && r->factor == 0)
        FAIL(ERR_FORMAT, "%sfactor is missing", where);
    if (r->kind == ROPE_DYNAMIC && r->dims < 4)
        FAIL(ERR_UNSUPPORTED, "%srope_type dynamic with %lld rotary dims, expected at least 4",
             where, (long long)r->dims);
    if (r->kind != ROPE_LLAMA3)
        return OK;
    if (r->low_freq_factor == 0 || r->high_freq_factor == 0)
        FAIL(ERR_FORMAT, "%s%s is missing", where,
             r->low_freq_factor == 0 ? "low_freq_factor" : "high_freq_factor");
    if (r->high_freq_factor <= r->low_freq_factor)
        FAIL(ERR_RANGE, "%shigh_freq_factor is %g, expected more than low_freq_factor, %g",
             where, r->high_freq_factor, r->low_freq_factor);
    return OK;
}

static Status read_keys(RopeKeys *k, const Json *root, const Json *object, const char *path,
                        const char *where)
{
    char top[KEYS_WHERE];
    snprintf(top, sizeof top, "%s: ", path);
    TRY(keys_read(k, KEYS + ORIGINAL, 1, root, top));
    int64_t beside = k->original;
    TRY(keys_read(k, KEYS, N_KEYS, object, where));
    if (beside)
        k->original = beside;
    return OK;
}

Status config_rope(Rope *r, Arena *a, const Config *c, const Json *root, const char *path)
{
    RopeKeys    k = {.theta = c->keys.rope_theta, .partial = c->keys.rotary, .truncate = true};
    const Json *object;
    const char *name;
    char        where[KEYS_WHERE];
    bool        needs_factor = false;
    *r = (Rope){0};
    if (c->arch->defaults.rotary == 0)
        return OK;   // positions are learned, or known from Mamba
    TRY(find_object(&object, root, &name, path));
    snprintf(where, sizeof where, "%s: %s.", path, name);
    TRY(read_keys(&k, root, object, path, where));
    *r = (Rope){
        .theta = k.theta,
        .factor = k.factor,
        .attention_factor = k.attention_factor,
        .beta_fast = k.beta_fast > 0 ? k.beta_fast : 32,
        .beta_slow = k.beta_slow > 0 ? k.beta_slow : 1,
        .low_freq_factor = k.low_freq_factor,
        .high_freq_factor = k.high_freq_factor,
        .original_max_positions = k.original,
        .truncate = k.truncate,
        .mscale = k.mscale,
        .mscale_all_dim = k.mscale_all_dim,
        .dims = (int64_t)((double)c->keys.head_dim * k.partial),
    };
    TRY(read_kind(&r->kind, &needs_factor, object, where));
    if (r->dims < 2 || r->dims % 2)
        FAIL(ERR_SHAPE, "%s: RoPE turns %lld of %lld dims of a head, expected an even number",
             path, (long long)r->dims, (long long)c->keys.head_dim);
    /* transformers' Llama turns whole heads whatever the factor says. */
    if (k.partial != 1 && !c->arch->partial)
        FAIL(ERR_UNSUPPORTED, "%s: partial_rotary_factor is %g, expected 1: %s turns whole "
             "heads", path, k.partial, c->arch->architecture);
    TRY(check_kind(r, needs_factor, where));
    if (r->kind != ROPE_LONGROPE)
        return OK;
    TRY(read_factors(&r->short_factor, a, object, "short_factor", r->dims / 2, where));
    return read_factors(&r->long_factor, a, object, "long_factor", r->dims / 2, where);
}
