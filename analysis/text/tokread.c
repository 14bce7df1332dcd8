/* tokread.c - members of the objects in tokenizer.json, with their checks. */
#include <stdio.h>
#include <string.h>

#include "analysis/text/tokenizer_parts.h"

static Status wrong_kind(const Reader *r, const Json *v, const char *where, const char *key,
                         const char *wanted)
{
    FAIL(ERR_FORMAT, "%s: %s: \"%s\" should be %s, is %s", r->t->path, where, key, wanted,
         v ? json_kind_name(v->kind) : "missing");
}

Status tokread_flag(const Reader *r, const Json *v, const char *where, const char *key,
                    bool fallback, bool *out)
{
    const Json *m = json_member(v, key);
    *out = fallback;
    if (!m || m->kind == JSON_NULL)
        return OK;
    if (m->kind != JSON_BOOL)
        return wrong_kind(r, m, where, key, "true or false");
    *out = m->truth;
    return OK;
}

Status tokread_count(const Reader *r, const Json *v, const char *where, const char *key,
                     int64_t *out)
{
    const Json *m = json_member(v, key);
    if (!m || m->kind != JSON_NUMBER || !m->whole || m->integer < 0)
        return wrong_kind(r, m, where, key, "a whole number of at least 0");
    *out = m->integer;
    return OK;
}

Status tokread_text(const Reader *r, const Json *v, const char *where, const char *key,
                    const char **out)
{
    const Json *m = json_member(v, key);
    if (!m || m->kind != JSON_TEXT)
        return wrong_kind(r, m, where, key, "a text");
    *out = arena_text(r->arena, m->text, strlen(m->text));
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: %zu bytes of text", strlen(m->text));
    return OK;
}

Status tokread_pattern(Reader *r, const Json *v, const char *where, const Pattern **out)
{
    const Json *m = json_member(v, "pattern");
    const char *text;
    char name[1200];
    Pattern *p = NULL;
    if (json_member(m, "Regex")) {
        TRY(tokread_text(r, m, where, "Regex", &text));
        snprintf(name, sizeof name, "%s: %s", r->t->path, where);
        TRY(pattern_compile(&p, &r->t->patterns, r->arena, name, text));
    } else if (json_member(m, "String")) {
        TRY(tokread_text(r, m, where, "String", &text));
        if (!*text)
            FAIL(ERR_UNSUPPORTED, "%s: %s: empty pattern", r->t->path, where);
        TRY(pattern_literal(&p, r->arena, text, (int64_t)strlen(text)));
    } else {
        return wrong_kind(r, m, where, "pattern", "{\"String\": ...} or {\"Regex\": ...}");
    }
    *out = p;
    return OK;
}

static Status read_one(Reader *r, const Json *v, const char *where, ReadStep one)
{
    const Json *type = json_member(v, "type");
    if (!type || type->kind != JSON_TEXT)
        return wrong_kind(r, type, where, "type", "a text");
    return one(r, v, type->text);
}

static bool is_sequence(const Json *v)
{
    const Json *type = json_member(v, "type");
    return type && strcmp(type->text, "Sequence") == 0;
}

/* Depth is bounded by JSON_MAX_DEPTH. */
Status tokread_steps(Reader *r, const Json *v, const char *where, const char *key, ReadStep one)
{
    if (!v || v->kind == JSON_NULL)
        return OK;
    if (!is_sequence(v))
        return read_one(r, v, where, one);
    const Json *list = json_member(v, key);
    if (!list || list->kind != JSON_LIST)
        return wrong_kind(r, list, where, key, "a list");
    for (int64_t i = 0; i < list->n; i++)
        TRY(tokread_steps(r, &list->at[i], where, key, one));
    return OK;
}
