/* tokread_special.c - which ids go in front of a text and behind it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "analysis/text/tokenizer_parts.h"

/* --- post-processor of tokenizer.json --- */

/* One template: the ids before and after the text. */
typedef struct {
    int32_t ids[2][TOKENIZER_MAX_SPECIAL];
    int n[2];
    int side; // 0 before the text, 1 after it
} Template;

static Status bad_template(const Reader *r, const char *what)
{
    FAIL(ERR_UNSUPPORTED, "%s: post_processor TemplateProcessing: %s", r->t->path, what);
}

static Status template_ids(const Reader *r, const Json *v, const Json *special, Template *t)
{
    const Json *name = json_member(v, "id");
    const Json *ids = json_member(json_member(special, name ? name->text : ""), "ids");
    if (!name || !ids || ids->kind != JSON_LIST)
        return bad_template(r, "a special token without ids");
    for (int64_t i = 0; i < ids->n; i++) {
        const Json *id = &ids->at[i];
        if (!id->whole || id->integer < 0 || id->integer >= r->t->size)
            FAIL(ERR_FORMAT,
                 "%s: post_processor: id %.0f of \"%.100s\" is not in the vocabulary "
                 "of %d",
                 r->t->path, id->number, name->text, (int)r->t->size);
        if (t->n[t->side] == TOKENIZER_MAX_SPECIAL)
            return bad_template(r, "too many special tokens");
        t->ids[t->side][t->n[t->side]++] = (int32_t)id->integer;
    }
    return OK;
}

static Status template_part(const Reader *r, const Json *v, const Json *special, Template *t)
{
    const Json *token = json_member(v, "SpecialToken");
    const Json *name = json_member(json_member(v, "Sequence"), "id");
    if (token)
        return template_ids(r, token, special, t);
    if (!name || strcmp(name->text, "A") != 0)
        return bad_template(r, "a part that is neither a special token nor sequence A");
    if (t->side == 1)
        return bad_template(r, "sequence A twice");
    t->side = 1;
    return OK;
}

/* An outer template's ids go around those of the ones before it. */
static Status wrap(Reader *r, const Template *outer)
{
    Tokenizer *t = r->t;
    int before = outer->n[0], after = outer->n[1];
    if (t->n_prefix + before > TOKENIZER_MAX_SPECIAL ||
        t->n_suffix + after > TOKENIZER_MAX_SPECIAL)
        return bad_template(r, "too many special tokens");
    memmove(t->prefix + before, t->prefix, (size_t)t->n_prefix * sizeof *t->prefix);
    memcpy(t->prefix, outer->ids[0], (size_t)before * sizeof *t->prefix);
    memcpy(t->suffix + t->n_suffix, outer->ids[1], (size_t)after * sizeof *t->suffix);
    t->n_prefix += before;
    t->n_suffix += after;
    return OK;
}

static Status post_step(Reader *r, const Json *v, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0)
        return OK; // trims offsets only
    if (strcmp(type, "TemplateProcessing") != 0)
        FAIL(ERR_UNSUPPORTED, "%s: post_processor of type \"%.100s\" is not known", r->t->path,
             type);
    const Json *single = json_member(v, "single");
    Template t = {0};
    if (!single || single->kind != JSON_LIST)
        return bad_template(r, "\"single\" is not a list");
    for (int64_t i = 0; i < single->n; i++)
        TRY(template_part(r, &single->at[i], json_member(v, "special_tokens"), &t));
    if (t.side == 0)
        return bad_template(r, "no sequence A");
    return wrap(r, &t);
}

Status tokread_special(Reader *r)
{
    Tokenizer *t = r->t;
    TRY(tokread_steps(r, json_member(r->root, "post_processor"), "post_processor", "processors",
                      post_step));
    /* Until tokenizer_config.json says otherwise. */
    t->bos = t->n_prefix ? t->prefix[0] : -1;
    t->eos = t->n_suffix ? t->suffix[t->n_suffix - 1] : -1;
    return OK;
}

/* --- tokenizer_config.json and special_tokens_map.json --- */

/* The file's tree, NULL where there is no such file. */
static Status read_optional(const Json **out, Arena *a, const char *folder, const char *file)
{
    const char *path = arena_printf(a, "%s/%s", folder, file);
    *out = NULL;
    if (!path)
        FAIL(ERR_MEMORY, "out of memory: path of %s", file);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return OK;
    return json_read(out, a, path);
}

static int32_t find_id(const Tokenizer *t, const char *text)
{
    for (int32_t i = 0; i < t->n_added; i++)
        if (strcmp(t->added[i].content, text) == 0)
            return t->added[i].id;
    return vocab_find(&t->vocab, text, (int64_t)strlen(text));
}

/* "bos_token": "<s>" or {"content": "<s>"}; null and absent leave *id. */
static Status named_token(const Tokenizer *t, const Json *v, const char *key, int32_t *id,
                          bool *found)
{
    const Json *m = json_member(v, key);
    if (m && m->kind == JSON_OBJECT)
        m = json_member(m, "content");
    if (*found || !m || m->kind == JSON_NULL)
        return OK;
    if (m->kind != JSON_TEXT)
        FAIL(ERR_FORMAT, "%s: \"%s\" of tokenizer_config.json should be a text, is %s", t->path,
             key, json_kind_name(m->kind));
    *id = find_id(t, m->text);
    if (*id < 0)
        FAIL(ERR_FORMAT, "%s: %s \"%.100s\" is not in the vocabulary", t->path, key, m->text);
    *found = true;
    return OK;
}

/* An explicit add_bos_token decides, whatever the post-processor does. */
static Status bos_rule(Tokenizer *t, bool add)
{
    bool there = t->n_prefix && t->prefix[0] == t->bos;
    if (add == there || t->bos < 0)
        return OK;
    if (add && t->n_prefix == TOKENIZER_MAX_SPECIAL)
        FAIL(ERR_UNSUPPORTED, "%s: too many special tokens", t->path);
    memmove(t->prefix + add, t->prefix + !add,
            (size_t)(t->n_prefix - !add) * sizeof *t->prefix);
    t->n_prefix += add ? 1 : -1;
    if (add)
        t->prefix[0] = t->bos;
    return OK;
}

static Status eos_rule(Tokenizer *t, bool add)
{
    bool there = t->n_suffix && t->suffix[t->n_suffix - 1] == t->eos;
    if (add == there || t->eos < 0)
        return OK;
    if (add && t->n_suffix == TOKENIZER_MAX_SPECIAL)
        FAIL(ERR_UNSUPPORTED, "%s: too many special tokens", t->path);
    t->n_suffix += add ? 1 : -1;
    if (add)
        t->suffix[t->n_suffix - 1] = t->eos;
    return OK;
}

Status tokread_named(Tokenizer *t, const Json *config, const Json *map)
{
    bool bos = false, eos = false;
    const Json *add_bos = json_member(config, "add_bos_token");
    const Json *add_eos = json_member(config, "add_eos_token");
    TRY(named_token(t, config, "bos_token", &t->bos, &bos));
    TRY(named_token(t, map, "bos_token", &t->bos, &bos));
    TRY(named_token(t, config, "eos_token", &t->eos, &eos));
    TRY(named_token(t, map, "eos_token", &t->eos, &eos));
    if (add_bos && add_bos->kind == JSON_BOOL)
        TRY(bos_rule(t, add_bos->truth));
    if (add_eos && add_eos->kind == JSON_BOOL)
        TRY(eos_rule(t, add_eos->truth));
    return OK;
}

Status tokread_config(Tokenizer *t, const char *folder)
{
    Arena scratch = {0};
    const Json *config, *map;
    Status s = OK;
    GUARD(read_optional(&config, &scratch, folder, "tokenizer_config.json"));
    GUARD(read_optional(&map, &scratch, folder, "special_tokens_map.json"));
    GUARD(tokread_named(t, config, map));
out:
    arena_close(&scratch);
    return s;
}
