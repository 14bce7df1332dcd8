/* needles_filler.c - cuts the text that needles stand in, where sentences or lines end. */
#include <string.h>

#include "analysis/json.h"
#include "analysis/tasks/needles_parts.h"

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool closes(char c)   // what may stand between a full stop and the space
{
    return c == '"' || c == '\'' || c == ')' || c == ']';
}

/* Does text[at..i) end like a sentence? */
static bool ends(const char *text, size_t at, size_t i)
{
    while (i > at && closes(text[i - 1]))
        i--;
    return i > at && (text[i - 1] == '.' || text[i - 1] == '!' || text[i - 1] == '?');
}

/* The ideographic full stop and the wide ! and ?: no space follows them. */
static bool is_wide_stop(const char *text, size_t n)
{
    static const char STOPS[3][4] = {"\xe3\x80\x82", "\xef\xbc\x81", "\xef\xbc\x9f"};
    for (int i = 0; i < 3; i++)
        if (n >= 3 && memcmp(text, STOPS[i], 3) == 0)
            return true;
    return false;
}

/* Past the spaces from i on; *line: was one of them a line's end? */
static size_t skip_spaces(const char *text, size_t n, size_t i, bool *line)
{
    for (*line = false; i < n && is_space(text[i]); i++)
        *line = *line || text[i] == '\n';
    return i;
}

/* Where the sentence that begins at `at` ends, its white space included. */
static size_t sentence_end(const char *text, size_t n, size_t at)
{
    bool line;
    for (size_t i = at; i < n;) {
        if (is_space(text[i])) {
            size_t next = skip_spaces(text, n, i, &line);
            if (line || ends(text, at, i) || i - at >= FILLER_SENTENCE)
                return next;
            i = next;
        } else if (is_wide_stop(text + i, n - i)) {
            return skip_spaces(text, n, i + 3, &line);
        } else if (i - at >= FILLER_WORD && ((unsigned char)text[i] & 0xc0) != 0x80) {
            return i;
        } else {
            i++;
        }
    }
    return n;
}

static Status check(const Filler *f, size_t n)
{
    size_t good = n ? json_utf8_prefix((const unsigned char *)f->text, n) : 0;
    if (good < n)
        FAIL(ERR_FORMAT, "%s: byte %zu is not UTF-8", f->name, good);
    const char *zero = n ? memchr(f->text, 0, n) : NULL;
    if (zero)
        FAIL(ERR_FORMAT, "%s: byte %zu is zero, expected text", f->name,
             (size_t)(zero - f->text));
    return OK;
}

/* start [f->n + 1] if not NULL; else counts only. */
static void cut(Filler *f, int64_t *start, size_t n)
{
    bool   line;
    size_t at = skip_spaces(f->text, n, 0, &line);
    for (f->n = 0; at < n; f->n++) {
        if (start)
            start[f->n] = (int64_t)at;
        at = sentence_end(f->text, n, at);
    }
    if (start)
        start[f->n] = (int64_t)n;
}

Status filler_cut(Filler *f, Arena *a, Tokenizer *t, const NeedleOptions *o)
{
    int64_t *start, *tokens, *begin, n_ids;
    int32_t *ids;
    *f = (Filler){.name = o->filler_name ? o->filler_name : "filler", .text = o->filler};
    TRY(check(f, o->n_filler));
    cut(f, NULL, o->n_filler);
    if (f->n == 0 && o->n_filler > 0)
        FAIL(ERR_RANGE, "%s: %zu bytes of white space, expected sentences to hide needles "
             "between", f->name, o->n_filler);
    ARENA_NEW(start, a, f->n + 1);
    ARENA_NEW(tokens, a, f->n + 1);
    cut(f, start, o->n_filler);
    TRY(tokenizer_encode(t, a, f->text, o->n_filler, false, &ids, &n_ids, &begin));
    for (int64_t i = 0, k = 0; i <= f->n; i++) {
        while (k < n_ids && begin[k] < start[i])
            k++;
        tokens[i] = k;
    }
    f->start = start;
    f->tokens = tokens;
    return OK;
}
