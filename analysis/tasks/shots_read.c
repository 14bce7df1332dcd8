/* shots_read.c - see shots_read.h. A line that is wrong is an error. */
#include "analysis/tasks/shots_read.h"

#include <string.h>

#include "analysis/json.h"
#include "kernels/filemap.h"

enum { MAX_LABELS = 10000 };

static Status member(const Json **out, const char *name, const Json *object, const char *key)
{
    if (object->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: expected an object, got %s", name, json_kind_name(object->kind));
    *out = json_member(object, key);
    if (!*out)
        FAIL(ERR_FORMAT, "%s: key \"%s\" is missing", name, key);
    if ((*out)->kind == JSON_TEXT && !(*out)->text[0])
        FAIL(ERR_FORMAT, "%s: \"%s\" is empty", name, key);
    return OK;
}

static Status add_label(int64_t *out, Examples *e, Arena *a, const char *name,
                        const char *label)
{
    for (*out = 0; *out < e->n_labels; ++*out)
        if (strcmp(e->labels[*out], label) == 0)
            return OK;
    if (e->n_labels == MAX_LABELS)
        FAIL(ERR_RANGE, "%s: more than %d different labels", name, MAX_LABELS);
    e->labels[e->n_labels] = arena_text(a, label, strlen(label));
    if (!e->labels[e->n_labels++])
        FAIL(ERR_MEMORY, "%s: out of memory", name);
    return OK;
}

static Status read_example(Examples *e, Arena *a, Arena *tmp, const char *name,
                           const Json *object)
{
    const Json *text, *label;
    Example    *x = &e->at[e->n];
    TRY(member(&text, name, object, "text"));
    TRY(member(&label, name, object, "label"));
    if (text->kind != JSON_TEXT)
        FAIL(ERR_FORMAT, "%s: \"text\" is %s, expected a text", name,
             json_kind_name(text->kind));
    if (label->kind != JSON_TEXT && !(label->kind == JSON_NUMBER && label->whole))
        FAIL(ERR_FORMAT, "%s: \"label\" is %s, expected a text or a whole number", name,
             label->kind == JSON_NUMBER ? "a fraction" : json_kind_name(label->kind));
    const char *spelt = label->kind == JSON_TEXT
                            ? label->text
                            : arena_printf(tmp, "%lld", (long long)label->integer);
    x->text = arena_text(a, text->text, strlen(text->text));
    if (!spelt || !x->text)
        FAIL(ERR_MEMORY, "%s: out of memory", name);
    TRY(add_label(&x->label, e, a, name, spelt));
    e->n++;
    return OK;
}

static bool is_blank(const char *text, size_t n)
{
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t' || text[n - 1] == '\r'))
        n--;
    return n == 0;
}

static Status read_line(Examples *e, Arena *a, int64_t line, const char *text, size_t n)
{
    Arena       tmp = {0};
    Status      s = OK;
    const Json *object;
    if (is_blank(text, n))
        return OK;
    const char *name = arena_printf(&tmp, "%s:%lld", e->path, (long long)line);
    GUARD(name ? OK : STATUS(ERR_MEMORY, "%s: out of memory", e->path));
    GUARD(json_parse(&object, &tmp, name, text, n));
    GUARD(read_example(e, a, &tmp, name, object));
out:
    arena_close(&tmp);
    return s;
}

static Status read_all(Examples *e, Arena *a, const char *text, size_t n)
{
    int64_t     lines = 1, line = 1;
    const char *end = text + n;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    ARENA_NEW(e->at, a, lines);
    ARENA_NEW(e->labels, a, MAX_LABELS);
    for (; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        TRY(read_line(e, a, line, text, (size_t)((stop ? stop : end) - text)));
        text = stop ? stop + 1 : end;
    }
    if (e->n_labels < 2)
        FAIL(ERR_RANGE, "%s: %lld examples with %lld different labels, at least 2 are needed",
             e->path, (long long)e->n, (long long)e->n_labels);
    return OK;
}

Status examples_read(Examples *e, Arena *a, const char *path)
{
    FileMap map = {0};
    Status  s = OK;
    *e = (Examples){.path = path};
    GUARD(filemap_open(&map, path));
    GUARD(read_all(e, a, (const char *)map.data, map.size));
out:
    filemap_close(&map);
    return s;
}
