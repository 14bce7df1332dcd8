/* episode.c - reads episodes from JSON lines; a line that is wrong is an error. */
#include "analysis/tasks/episode.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/json.h"
#include "kernels/filemap.h"

typedef struct {
    const char *id;
    int64_t     needles;
    const char *context, *answer;
    int64_t     span[2];     // code points
    int64_t     n_given;
    int64_t   (*given)[2];   // [n_given] code points of the answer
} Fields;

enum { MAX_NEEDLES = 1000000 };

/* "file:3", the name of a line in messages. */
typedef struct {
    const char *path;
    int64_t     line;
} Place;

#define FAIL_AT(place, code, fmt, ...)                                         \
    FAIL(code, "%s:%lld: " fmt, (place)->path, (long long)(place)->line, ##__VA_ARGS__)

static Status read_text(const char **out, const Place *at, const char *key, const Json *v)
{
    if (v->kind != JSON_TEXT)
        FAIL_AT(at, ERR_FORMAT, "\"%s\" is %s, expected a text", key, json_kind_name(v->kind));
    if (!v->text[0])
        FAIL_AT(at, ERR_FORMAT, "\"%s\" is empty", key);
    *out = v->text;
    return OK;
}

static Status read_whole(int64_t *out, const Place *at, const char *key, const Json *v)
{
    if (v->kind != JSON_NUMBER || !v->whole)
        FAIL_AT(at, ERR_FORMAT, "\"%s\" is %s, expected a whole number", key,
                json_not_whole(v));
    *out = v->integer;
    return OK;
}

static Status read_span(int64_t span[2], const Place *at, const char *key, const Json *v)
{
    if (v->kind != JSON_LIST || v->n != 2)
        FAIL_AT(at, ERR_FORMAT, "\"%s\" is %s, expected a list [start, end]", key,
                v->kind == JSON_LIST ? "a list of another length" : json_kind_name(v->kind));
    TRY(read_whole(&span[0], at, key, &v->at[0]));
    return read_whole(&span[1], at, key, &v->at[1]);
}

static Status read_given(Fields *f, Arena *a, const Place *at, const Json *v)
{
    if (!v)
        return OK;
    if (v->kind != JSON_LIST)
        FAIL_AT(at, ERR_FORMAT, "\"given\" is %s, expected a list", json_kind_name(v->kind));
    ARENA_NEW(f->given, a, v->n);
    for (f->n_given = 0; f->n_given < v->n; f->n_given++)
        TRY(read_span(f->given[f->n_given], at, "given", &v->at[f->n_given]));
    return OK;
}

static Status read_fields(Fields *f, Arena *a, const Place *at, const Json *object)
{
    enum { ID, N, CONTEXT, ANSWER, SPAN, N_KEYS };
    static const char *const KEYS[N_KEYS] = {"id", "n", "context", "answer", "span"};
    const Json *found[N_KEYS];
    if (object->kind != JSON_OBJECT)
        FAIL_AT(at, ERR_FORMAT, "expected an object, got %s", json_kind_name(object->kind));
    for (int i = 0; i < N_KEYS; i++) {
        found[i] = json_member(object, KEYS[i]);
        if (!found[i])
            FAIL_AT(at, ERR_FORMAT, "key \"%s\" is missing", KEYS[i]);
    }
    TRY(read_text(&f->id, at, "id", found[ID]));
    TRY(read_whole(&f->needles, at, "n", found[N]));
    TRY(read_text(&f->context, at, "context", found[CONTEXT]));
    TRY(read_text(&f->answer, at, "answer", found[ANSWER]));
    TRY(read_span(f->span, at, "span", found[SPAN]));
    TRY(read_given(f, a, at, json_member(object, "given")));
    if (f->needles < 1 || f->needles > MAX_NEEDLES)
        FAIL_AT(at, ERR_RANGE, "\"n\" is %lld, expected 1 to %d needles",
                (long long)f->needles, MAX_NEEDLES);
    return OK;
}

static int64_t code_points(const char *text)
{
    int64_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* Byte at which code point number n begins; text has at least n of them. */
static size_t byte_of(const char *text, int64_t n)
{
    size_t i = 0;
    for (; text[i]; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80 && n-- == 0)
            break;
    return i;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

/* A span of code points of text as bytes of it. */
static Status make_span(TextSpan *out, const Place *at, const char *key, const int64_t span[2],
                        const char *text, const char *of)
{
    int64_t n = code_points(text);
    if (span[0] < 0 || span[0] >= span[1] || span[1] > n)
        FAIL_AT(at, ERR_RANGE, "\"%s\" is [%lld, %lld], expected start below end within the "
                "%lld characters of the %s", key, (long long)span[0], (long long)span[1],
                (long long)n, of);
    *out = (TextSpan){byte_of(text, span[0]), byte_of(text, span[1])};
    return OK;
}

static Status make_given(Episode *e, Arena *a, const Place *at, const Fields *f)
{
    size_t context = strlen(f->context), end = context;
    ARENA_NEW(e->given, a, f->n_given);
    for (e->n_given = 0; e->n_given < f->n_given; e->n_given++) {
        TextSpan *g = &e->given[e->n_given];
        TRY(make_span(g, at, "given", f->given[e->n_given], f->answer, "answer"));
        g->first += context;
        g->end += context;
        if (g->first < end)
            FAIL_AT(at, ERR_RANGE, "\"given\" has parts that overlap or are out of order");
        end = g->end;
    }
    return OK;
}

static Status make(Episode *e, Arena *a, const Place *at, const Fields *f)
{
    *e = (Episode){.line = at->line, .needles = f->needles};
    e->n_context = strlen(f->context);
    e->id = arena_text(a, f->id, strlen(f->id));
    e->text = arena_printf(a, "%s%s", f->context, f->answer);
    if (!e->id || !e->text)
        FAIL_AT(at, ERR_MEMORY, "out of memory");
    e->n_text = e->n_context + strlen(f->answer);
    TRY(make_span(&e->span, at, "span", f->span, f->context, "context"));
    TRY(make_given(e, a, at, f));
    while (e->n_context > 0 && is_space(f->context[e->n_context - 1]))
        e->n_context--;
    if (e->n_context == 0)
        FAIL_AT(at, ERR_FORMAT, "\"context\" is blank");
    return OK;
}

static Status read_line(Episode *e, Arena *a, Place *at, const char *line, size_t n)
{
    Arena       tmp = {0};
    Fields      f = {0};
    Status      s = OK;
    const Json *object;
    const char *name = arena_printf(&tmp, "%s:%lld", at->path, (long long)at->line);
    GUARD(name ? OK : STATUS(ERR_MEMORY, "%s: out of memory", at->path));
    GUARD(json_parse(&object, &tmp, name, line, n));
    GUARD(read_fields(&f, &tmp, at, object));
    GUARD(make(e, a, at, &f));
out:
    arena_close(&tmp);
    return s;
}

static int64_t count_lines(const char *text, size_t n)
{
    int64_t lines = n > 0 && text[n - 1] != '\n';
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

static bool is_blank(const char *text, size_t n)
{
    while (n > 0 && is_space(text[n - 1]))
        n--;
    return n == 0;
}

static Status read_lines(Episode *e, int64_t *count, Arena *a, const char *path,
                         const FileMap *map)
{
    const char *text = (const char *)map->data, *end = text + map->size;
    Place       at = {.path = path};
    for (*count = 0; text < end;) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t      n = (size_t)((stop ? stop : end) - text);
        at.line++;
        if (!is_blank(text, n))
            TRY(read_line(&e[(*count)++], a, &at, text, n));
        text = stop ? stop + 1 : end;
    }
    return OK;
}

static int by_id_and_line(const void *x, const void *y)
{
    const Episode *a = *(const Episode *const *)x, *b = *(const Episode *const *)y;
    int order = strcmp(a->id, b->id);
    return order ? order : a->line < b->line ? -1 : 1;
}

static Status check_ids(Arena *a, const Episode *e, int64_t n, const char *path)
{
    const Episode **sorted;
    ARENA_NEW(sorted, a, n);
    for (int64_t i = 0; i < n; i++)
        sorted[i] = &e[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_id_and_line);
    for (int64_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0)
            FAIL(ERR_FORMAT, "%s:%lld: id \"%.100s\" was used in line %lld", path,
                 (long long)sorted[i]->line, sorted[i]->id, (long long)sorted[i - 1]->line);
    return OK;
}

Status episodes_read(Episode **out, int64_t *n, Arena *a, const char *path)
{
    FileMap map = {0};
    Status  s = OK;
    GUARD(filemap_open(&map, path));
    int64_t lines = count_lines((const char *)map.data, map.size);
    *out = arena_alloc(a, lines, sizeof **out);
    GUARD(*out ? OK : STATUS(ERR_MEMORY, "%s: out of memory for %lld lines", path,
                             (long long)lines));
    GUARD(read_lines(*out, n, a, path, &map));
    GUARD(*n > 0 ? OK : STATUS(ERR_RANGE, "%s: holds no episodes", path));
    GUARD(check_ids(a, *out, *n, path));
out:
    filemap_close(&map);
    return s;
}
