/* windows.c - cuts tokens into windows and says what each must predict. */
#include "analysis/windows.h"

#include <string.h>

#include "analysis/tasks/windows_cut.h"
#include "analysis/text/utf8.h"
#include "kernels/size.h"

/* --- names and tokens in front --- */

const char *window_convention_name(WindowConvention c)
{
    CHECK((unsigned)c < N_WINDOW_CONVENTIONS);
    return CONVENTIONS[c].name;
}

Status window_convention_parse(WindowConvention *c, const char *name)
{
    for (int i = 0; i < N_WINDOW_CONVENTIONS; i++)
        if (strcmp(name, CONVENTIONS[i].name) == 0) {
            *c = (WindowConvention)i;
            return OK;
        }
    FAIL(ERR_USAGE, "unknown convention of windows \"%.40s\", expected disjoint, strided, "
         "llama.cpp, lm-eval or gptq", name);
}

int32_t windows_bos(const Tokenizer *t, bool no_bos)
{
    return !no_bos && tokenizer_adds_bos(t) ? tokenizer_bos(t) : -1;
}

int32_t windows_prefix(const Tokenizer *t, const WindowOptions *o)
{
    if (!CONVENTIONS[o->convention].any_prefix || o->no_bos)
        return windows_bos(t, o->no_bos);
    return tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_eos(t);
}

/* --- checks --- */

static Status check_options(const WindowOptions *o)
{
    CHECK((unsigned)o->convention < N_WINDOW_CONVENTIONS);
    const Convention *c = &CONVENTIONS[o->convention];
    if (o->context < c->min_context)
        FAIL(ERR_RANGE, "a context of %lld tokens: at least %lld are needed",
             (long long)o->context, (long long)c->min_context);
    if (o->max_tokens < 0)
        FAIL(ERR_RANGE, "at most %lld tokens of the text: a number above 0 is needed",
             (long long)o->max_tokens);
    if (o->stride < 0 || o->stride > o->context)
        FAIL(ERR_RANGE, "a stride of %lld tokens, expected 1 to the context, %lld",
             (long long)o->stride, (long long)o->context);
    if (o->stride && o->convention != WINDOWS_STRIDED)
        FAIL(ERR_USAGE, "a stride of %lld tokens, but %s windows have none",
             (long long)o->stride, c->name);
    return OK;
}

static Status check_text(const char *name, const Cut *c, const Convention *convention)
{
    if (c->n == 0)
        FAIL(ERR_RANGE, "%s: the text is empty", name);
    if (c->n == 1)
        FAIL(ERR_RANGE, "%s: a text of a single token predicts nothing", name);
    if (convention->any_prefix && !c->bos)
        FAIL(ERR_RANGE, "%s: windows of %s begin with BOS or EOS, and there is neither", name,
             convention->name);
    if (convention->count(c) == 0)
        FAIL(ERR_RANGE, "%s: %lld tokens are not one whole window of %lld, and %s counts "
             "only those", name, (long long)(c->n + c->bos), (long long)c->context,
             convention->name);
    return OK;
}

/* --- cutting --- */

static int64_t piece_rows(const Piece *p)
{
    return p->bos + p->end - p->first;
}

/* Token j of the text is predicted by the row of the token before it. */
static void fill_window(int32_t *out, int32_t *targets, const Piece *p, const Windows *w,
                        const int32_t *ids)
{
    int64_t rows = piece_rows(p);
    if (p->bos)
        out[0] = w->bos;
    memcpy(out + p->bos, ids + p->first, (size_t)(p->end - p->first) * sizeof *out);
    for (int64_t t = 0; t < rows; t++)
        targets[t] = -1;
    for (int64_t j = p->score_first; j < p->score_end; j++)
        targets[p->bos + j - p->first - 1] = ids[j];
}

static Status fill(Windows *w, Arena *a, const Cut *c, const Convention *by,
                   const int32_t *ids)
{
    int64_t  n = by->count(c);
    int64_t *start;
    int32_t *out, *targets;
    ARENA_NEW(start, a, n + 1);
    for (int64_t i = 0; i < n; i++) {
        Piece p = by->piece(c, i);
        start[i + 1] = start[i] + piece_rows(&p);
        w->n_scored += p.score_end > p.score_first ? p.score_end - p.score_first : 0;
    }
    w->n_tokens = start[n];
    ARENA_NEW(out, a, w->n_tokens);
    ARENA_NEW(targets, a, w->n_tokens);
    for (int64_t i = 0; i < n; i++) {
        Piece p = by->piece(c, i);
        fill_window(out + start[i], targets + start[i], &p, w, ids);
    }
    w->seq = (Sequences){.n = n, .start = start, .ids = out, .targets = targets};
    return OK;
}

Status windows_from_ids(Windows *w, Arena *a, const char *name, const int32_t *ids, int64_t n,
                        int32_t bos, const WindowOptions *o)
{
    TRY(check_options(o));
    const Convention *by = &CONVENTIONS[o->convention];
    *w = (Windows){.context = o->context, .bos = o->no_bos ? -1 : bos};
    w->n_text = o->max_tokens ? i64_min(n, o->max_tokens) : n;
    Cut c = {w->n_text, o->context, o->stride ? o->stride : o->context / 2, w->bos >= 0};
    TRY(check_text(name, &c, by));
    w->convention = by->sentence(a, &c);
    if (!w->convention)
        FAIL(ERR_MEMORY, "out of memory for the windows of %s", name);
    return fill(w, a, &c, by, ids);
}

/* --- texts --- */

/* Of valid or invalid UTF-8; Python's \s has four separators more than Unicode. */
static int64_t count_words(const char *text, int64_t n)
{
    int64_t words = 1;
    bool    in_space = false;
    for (int64_t i = 0; i < n;) {
        bool valid, space = false;
        int  step = utf8_step(text + i, n - i, &valid);
        if (valid) {
            uint32_t ch = utf8_get(text + i, &step);
            space = utf8_is_space(ch) || (ch >= 0x1c && ch <= 0x1f);
        }
        words += space && !in_space;
        in_space = space;
        i += step;
    }
    return words;
}

/* A figure per byte or word needs the log-likelihood of all of them. */
static void measure_text(Windows *w, const char *text, size_t n, const int64_t *begin,
                         int64_t n_ids)
{
    if (w->n_scored != w->n_text)
        return;
    w->n_bytes = w->n_text < n_ids ? begin[w->n_text] : (int64_t)n;
    w->n_words = count_words(text, w->n_bytes);
}

/* The harness encodes a text as its tokenizer does, so a BOS that this adds is a token of
 * the text and is predicted from the BOS before it. Not where the text begins with its
 * spelling. */
static bool adds_special(Tokenizer *t, const char *text, size_t n, const WindowOptions *o)
{
    int32_t prefix = windows_prefix(t, o);
    if (!CONVENTIONS[o->convention].any_prefix || o->no_bos || prefix < 0)
        return false;
    const char *spelling = tokenizer_piece(t, prefix);
    size_t      k = strlen(spelling);
    return k == 0 || n < k || memcmp(text, spelling, k) != 0;
}

Status windows_from_text(Windows *w, Arena *a, Tokenizer *t, const char *name,
                         const char *text, size_t n, const WindowOptions *o)
{
    Status   s = OK;
    Arena    tmp = {0};
    int32_t *ids = NULL;
    int64_t  n_ids = 0, *begin = NULL;
    if (n == 0)
        FAIL(ERR_RANGE, "%s: the text is empty", name);
    TRY(check_options(o));
    /* One more than wanted: it says where the last one ends. */
    GUARD(tokenizer_encode_first(t, &tmp, text, n, adds_special(t, text, n, o),
                                 o->max_tokens ? o->max_tokens + 1 : 0, &ids, &n_ids, &begin));
    GUARD(windows_from_ids(w, a, name, ids, n_ids, windows_prefix(t, o), o));
    measure_text(w, text, n, begin, n_ids);
out:
    arena_close(&tmp);
    return s;
}

/* --- slices --- */

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
    out->n_tokens = out->n_text = start[n];
    out->n_scored = out->n_bytes = out->n_words = 0;
    for (int64_t t = 0; t < start[n]; t++)
        out->n_scored += out->seq.targets[t] >= 0;
    for (int64_t i = 0; i < n; i++)
        out->n_text -= start[i + 1] > start[i] && out->seq.ids[start[i]] == w->bos;
    return OK;
}
