/* windows.c - cuts tokens into windows and puts BOS before each. */
#include "analysis/windows.h"

#include <string.h>

#include "kernels/size.h"

int32_t windows_bos(const Tokenizer *t, bool no_bos)
{
    return !no_bos && tokenizer_adds_bos(t) ? tokenizer_bos(t) : -1;
}

static Status check(const char *name, int64_t n, const WindowOptions *o)
{
    if (o->context < 2)
        FAIL(ERR_RANGE, "a context of %lld tokens: at least 2 are needed",
             (long long)o->context);
    if (o->max_tokens < 0)
        FAIL(ERR_RANGE, "at most %lld tokens of the text: a number above 0 is needed",
             (long long)o->max_tokens);
    if (n == 0)
        FAIL(ERR_RANGE, "%s: the text is empty", name);
    if (n == 1 || o->max_tokens == 1)
        FAIL(ERR_RANGE, "%s: a text of a single token predicts nothing", name);
    return OK;
}

/* Fills window i: BOS, then its piece of ids[n]. */
static void fill_window(int64_t *start, int32_t *out, int32_t *targets, int64_t i,
                        const Windows *w, const int32_t *ids)
{
    int64_t bos = w->bos >= 0, piece = w->context - bos;
    int64_t first = i * piece, count = i64_min(piece, w->n_text - first);
    int64_t at = start[i], end = at + bos + count;
    if (bos)
        out[at] = w->bos;
    memcpy(out + at + bos, ids + first, (size_t)count * sizeof *out);
    for (int64_t t = at; t < end; t++)
        targets[t] = t + 1 < end ? out[t + 1] : -1;
    start[i + 1] = end;
}

static Status fill(Windows *w, Arena *a, const int32_t *ids)
{
    int64_t  piece = w->context - (w->bos >= 0), n = ceil_div(w->n_text, piece);
    int64_t *start;
    int32_t *out, *targets;
    w->n_tokens = w->n_text + (w->bos >= 0 ? n : 0);
    w->n_scored = w->n_tokens - n;
    ARENA_NEW(start, a, n + 1);
    ARENA_NEW(out, a, w->n_tokens);
    ARENA_NEW(targets, a, w->n_tokens);
    for (int64_t i = 0; i < n; i++)
        fill_window(start, out, targets, i, w, ids);
    w->seq = (Sequences){.n = n, .start = start, .ids = out, .targets = targets};
    return OK;
}

Status windows_from_ids(Windows *w, Arena *a, const char *name, const int32_t *ids, int64_t n,
                        int32_t bos, const WindowOptions *o)
{
    TRY(check(name, n, o));
    *w = (Windows){.context = o->context, .bos = o->no_bos ? -1 : bos};
    w->n_text = o->max_tokens ? i64_min(n, o->max_tokens) : n;
    w->convention = arena_printf(
        a, "Windows of %lld tokens without overlap, %s; perplexity is exp of the mean "
        "negative log-likelihood of all other tokens.", (long long)w->context,
        w->bos >= 0 ? "each beginning with BOS, which counts but is not scored"
                    : "without BOS, the first token of each not scored");
    if (!w->convention)
        FAIL(ERR_MEMORY, "out of memory for the windows of %s", name);
    return fill(w, a, ids);
}

Status windows_from_text(Windows *w, Arena *a, Tokenizer *t, const char *name,
                         const char *text, size_t n, const WindowOptions *o)
{
    Status   s = OK;
    Arena    tmp = {0};
    int32_t *ids = NULL;
    int64_t  n_ids = 0;
    if (n == 0)
        FAIL(ERR_RANGE, "%s: the text is empty", name);
    GUARD(tokenizer_encode(t, &tmp, text, n, false, &ids, &n_ids, NULL));
    GUARD(windows_from_ids(w, a, name, ids, n_ids, windows_bos(t, o->no_bos), o));
out:
    arena_close(&tmp);
    return s;
}

Status windows_slice(Windows *out, Arena *a, const Windows *w, int64_t first, int64_t n)
{
    CHECK(first >= 0 && n >= 0 && first + n <= w->seq.n);
    int64_t  from = w->seq.start[first];
    int64_t *start;
    ARENA_NEW(start, a, n + 1);
    for (int64_t i = 0; i <= n; i++)
        start[i] = w->seq.start[first + i] - from;
    *out = *w;
    out->seq = (Sequences){.n = n, .start = start, .ids = w->seq.ids + from,
                           .targets = w->seq.targets + from};
    out->n_tokens = start[n];
    out->n_text = start[n] - (w->bos >= 0 ? n : 0);
    out->n_scored = start[n] - n;
    return OK;
}
