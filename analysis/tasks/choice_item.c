/* choice_item.c - reads the lines of a task's file; one that is wrong is an error. */
#include "analysis/tasks/choice_item.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/filemap.h"

/* By what the lines of a layout are known: keys that no layout above it has. */
static const struct {
    const char *name, *keys[3], *id;
    Status    (*read)(ChoiceItem *it, const ChoiceLine *l);
} LAYOUTS[N_CHOICES] = {
    [CHOICE_HELLASWAG] = {"hellaswag", {"endings"}, "ind", choice_hellaswag},
    [CHOICE_ARC] = {"arc", {"question", "choices", "answerKey"}, "id", choice_arc},
    [CHOICE_PIQA] = {"piqa", {"goal", "sol1"}, "id", choice_piqa},
    [CHOICE_WINOGRANDE] = {"winogrande", {"sentence", "option1"}, "qID", choice_winogrande},
    [CHOICE_BOOLQ] = {"boolq", {"passage", "question"}, "idx", choice_boolq},
    [CHOICE_OPENBOOKQA] = {"openbookqa", {"question_stem"}, "id", choice_openbookqa},
    [CHOICE_GENERIC] = {"generic", {"context", "choices", "answer"}, "id", choice_generic},
};

const char *choice_kind_name(ChoiceKind k)
{
    CHECK(k >= 0 && k < N_CHOICES);
    return LAYOUTS[k].name;
}

static bool has_keys(const Json *object, ChoiceKind k)
{
    for (int i = 0; i < 3 && LAYOUTS[k].keys[i]; i++)
        if (!json_member(object, LAYOUTS[k].keys[i]))
            return false;
    return true;
}

enum { LISTED_KEYS = 8 };

/* "id", "question", ... */
static void list_keys(char *out, size_t size, const Json *object)
{
    size_t n = (size_t)snprintf(out, size, "%s", object->n ? "" : "none");
    for (int64_t i = 0; i < object->n && i < LISTED_KEYS && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s\"%.16s\"", i ? ", " : "",
                              object->at[i].key);
    if (object->n > LISTED_KEYS && n < size)
        snprintf(out + n, size - n, "...");
}

static Status find_kind(ChoiceKind *out, const ChoiceLine *l)
{
    for (int k = 0; k < N_CHOICES; k++)
        if (has_keys(l->object, (ChoiceKind)k)) {
            *out = (ChoiceKind)k;
            return OK;
        }
    char got[LISTED_KEYS * 24];
    list_keys(got, sizeof got, l->object);
    FAIL_LINE(l, ERR_FORMAT, "the keys are those of no task: %s; a plain line has \"context\", "
              "\"choices\" and \"answer\", one of retrieval \"id\", \"n\", \"context\", "
              "\"answer\" and \"span\"", got);
}

/* --- a line --- */

static Status read_id(const char **out, const ChoiceLine *l, const char *key)
{
    const Json *v = json_member(l->object, key);
    if (!v)
        return OK;
    if (v->kind == JSON_TEXT)
        return line_text(out, l, key);
    if (!v->whole)
        FAIL_LINE(l, ERR_FORMAT, "\"%s\" is %s, expected a text or a whole number", key,
                  json_not_whole(v));
    int64_t number;
    TRY(line_whole(&number, l, key));
    return line_printf(out, l, "%lld", (long long)number);
}

static Status check_choices(const ChoiceItem *it, const ChoiceLine *l)
{
    for (int64_t i = 0; i < it->n; i++)
        if (!it->choice[i][0] || !it->continuation[i][0])
            FAIL_LINE(l, ERR_RANGE, "choice %lld is empty", (long long)i);
    return OK;
}

static Status read_object(ChoiceItem *it, ChoiceKind *kind, bool first, const ChoiceLine *l)
{
    if (l->object->kind != JSON_OBJECT)
        FAIL_LINE(l, ERR_FORMAT, "expected an object, got %s", json_kind_name(l->object->kind));
    if (first)
        TRY(find_kind(kind, l));
    if (!it)
        return OK;
    it->line = l->line;
    TRY(read_id(&it->id, l, LAYOUTS[*kind].id));
    TRY(LAYOUTS[*kind].read(it, l));
    return check_choices(it, l);
}

static Status read_line(ChoiceItem *it, ChoiceKind *kind, bool first, ChoiceLine *l,
                        const char *text, size_t n)
{
    Arena       tmp = {0};
    Status      s = OK;
    const char *name = arena_printf(&tmp, "%s:%lld", l->path, (long long)l->line);
    GUARD(name ? OK : STATUS(ERR_MEMORY, "%s: out of memory", l->path));
    GUARD(json_parse(&l->object, &tmp, name, text, n));
    GUARD(read_object(it, kind, first, l));
out:
    arena_close(&tmp);
    return s;
}

/* --- a file --- */

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\v\f", text[i]) || !text[i])
            return false;
    return true;
}

static int64_t count_lines(const FileMap *map)
{
    int64_t lines = 1;
    for (size_t i = 0; i < map->size; i++)
        lines += map->data[i] == '\n';
    return lines;
}

/* items NULL: only the first line, for its kind. */
static Status read_lines(ChoiceItem *items, int64_t *count, ChoiceKind *kind, Arena *a,
                         const char *path, const FileMap *map)
{
    const char *text = (const char *)map->data, *end = text + map->size;
    ChoiceLine  l = {.path = path, .arena = a};
    for (*count = 0; text < end && (items || *count == 0);) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t      n = (size_t)((stop ? stop : end) - text);
        l.line++;
        if (!is_blank(text, n)) {
            TRY(read_line(items ? &items[*count] : NULL, kind, *count == 0, &l, text, n));
            ++*count;
        }
        text = stop ? stop + 1 : end;
    }
    if (*count == 0)
        FAIL(ERR_RANGE, "%s: holds no items", path);
    return OK;
}

static int by_id_and_line(const void *x, const void *y)
{
    const ChoiceItem *a = *(const ChoiceItem *const *)x, *b = *(const ChoiceItem *const *)y;
    int order = strcmp(a->id, b->id);
    return order ? order : a->line < b->line ? -1 : 1;
}

static Status check_ids(const ChoiceItem *items, int64_t n, const char *path)
{
    Arena              tmp = {0};
    Status             s = OK;
    int64_t            n_ids = 0;
    const ChoiceItem **sorted = arena_alloc(&tmp, n, sizeof *sorted);
    GUARD(sorted ? OK : STATUS(ERR_MEMORY, "%s: out of memory for ids", path));
    for (int64_t i = 0; i < n; i++)
        if (items[i].id)
            sorted[n_ids++] = &items[i];
    qsort(sorted, (size_t)n_ids, sizeof *sorted, by_id_and_line);
    for (int64_t i = 1; i < n_ids && s == OK; i++)
        if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0)
            s = STATUS(ERR_FORMAT, "%s:%lld: id \"%.100s\" was used in line %lld", path,
                       (long long)sorted[i]->line, sorted[i]->id,
                       (long long)sorted[i - 1]->line);
out:
    arena_close(&tmp);
    return s;
}

Status choice_items(ChoiceItem **out, int64_t *n, ChoiceKind *kind, Arena *a, const char *path)
{
    FileMap map = {0};
    Status  s = OK;
    GUARD(filemap_open(&map, path));
    int64_t lines = count_lines(&map);
    *out = arena_alloc(a, lines, sizeof **out);
    GUARD(*out ? OK : STATUS(ERR_MEMORY, "%s: out of memory for %lld lines", path,
                             (long long)lines));
    GUARD(read_lines(*out, n, kind, a, path, &map));
    GUARD(check_ids(*out, *n, path));
out:
    filemap_close(&map);
    return s;
}

Status choice_kind(ChoiceKind *out, const char *path)
{
    FileMap map = {0};
    int64_t n;
    TRY(filemap_open(&map, path));
    Status s = read_lines(NULL, &n, out, NULL, path, &map);
    filemap_close(&map);
    return s;
}

bool choice_item_same(const ChoiceItem *x, const ChoiceItem *y)
{
    bool same = x->n == y->n && x->gold == y->gold && !x->id == !y->id;
    same = same && (!x->id || strcmp(x->id, y->id) == 0);
    for (int64_t i = 0; same && i < x->n; i++)
        same = strcmp(x->context[i], y->context[i]) == 0 &&
               strcmp(x->choice[i], y->choice[i]) == 0 &&
               strcmp(x->continuation[i], y->continuation[i]) == 0;
    return same;
}
