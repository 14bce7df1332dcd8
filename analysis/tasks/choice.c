/* choice.c - a task's questions as token sequences, and which were answered right. */
#include "analysis/choice.h"

#include <math.h>
#include <string.h>

#include "analysis/tasks/choice_item.h"
#include "analysis/tasks/choice_tokens.h"
#include "kernels/size.h"

/* Between context and continuation: target_delimiter of all these tasks. */
#define DELIMITER " "

static int64_t code_points(const char *text)
{
    int64_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* --- requests --- */

/* first and gold; n_requests. */
static Status lay_out_items(Choice *c, Arena *a, const ChoiceItem *items)
{
    int64_t *gold, *first;
    ARENA_NEW(gold, a, c->n);
    ARENA_NEW(first, a, c->n + 1);
    for (int64_t i = 0; i < c->n; i++) {
        gold[i] = items[i].gold;
        first[i + 1] = first[i] + items[i].n;
    }
    c->gold = gold;
    c->first = first;
    c->n_requests = first[c->n];
    return OK;
}

static Status ask(ChoiceRow *rows, ChoiceRequest *requests, Choice *c, Arena *a,
                  const ChoiceTokens *t, const ChoiceItem *it, int64_t item)
{
    for (int64_t j = 0; j < it->n; j++) {
        int64_t     r = c->first[item] + j;
        const char *text = arena_printf(a, "%s%s", DELIMITER, it->continuation[j]);
        if (!text)
            FAIL(ERR_MEMORY, "%s: out of memory for a text", c->path);
        TRY(choice_tokens_row(&rows[r], a, t, it->context[j], text));
        requests[r] = (ChoiceRequest){.item = item, .choice = j,
                                      .length = code_points(it->choice[j]),
                                      .truncated = rows[r].truncated};
        c->n_truncated += rows[r].truncated;
    }
    return OK;
}

/* Rows end to end. */
static Status join(Sequences *out, Arena *a, const ChoiceRow *rows, int64_t n)
{
    int64_t *start;
    int32_t *ids, *targets;
    ARENA_NEW(start, a, n + 1);
    for (int64_t i = 0; i < n; i++)
        start[i + 1] = start[i] + rows[i].n;
    ARENA_NEW(ids, a, start[n]);
    ARENA_NEW(targets, a, start[n]);
    for (int64_t i = 0; i < n; i++) {
        const ChoiceRow *r = &rows[i];
        memcpy(ids + start[i], r->ids, (size_t)r->n * sizeof *ids);
        for (int64_t t = 0; t < r->n; t++)
            targets[start[i] + t] = t < r->n - r->n_scored ? -1 : r->ids[t + 1];
    }
    *out = (Sequences){.n = n, .start = start, .ids = ids, .targets = targets};
    return OK;
}

static Status make_requests(Choice *c, Arena *a, Arena *tmp, Tokenizer *t,
                            const ChoiceItem *items, const ChoiceOptions *o)
{
    ChoiceTokens   tokens;
    ChoiceRow     *rows;
    ChoiceRequest *requests;
    choice_tokens_init(&tokens, t, c->path, o);
    ARENA_NEW(rows, tmp, c->n_requests);
    ARENA_NEW(requests, a, c->n_requests);
    for (int64_t i = 0; i < c->n; i++) {
        tokens.line = items[i].line;
        TRY(ask(rows, requests, c, tmp, &tokens, &items[i], i));
    }
    c->requests = requests;
    return join(&c->seq, a, rows, c->n_requests);
}

static Status name_it(Choice *c, Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    const char *dot = strrchr(stem, '.');
    c->path = arena_text(a, path, strlen(path));
    c->name = arena_text(a, stem, dot && dot > stem ? (size_t)(dot - stem) : strlen(stem));
    if (!c->path || !c->name)
        FAIL(ERR_MEMORY, "%s: out of memory", path);
    return OK;
}

static Status load(Choice *c, Arena *a, Arena *tmp, Tokenizer *t, const ChoiceOptions *o)
{
    ChoiceItem *items;
    TRY(choice_items(&items, &c->n, &c->kind, tmp, c->path));
    c->has_norm = c->kind != CHOICE_WINOGRANDE && c->kind != CHOICE_BOOLQ;
    TRY(lay_out_items(c, a, items));
    return make_requests(c, a, tmp, t, items, o);
}

Status choice_load(Choice *c, Arena *a, Tokenizer *t, const char *path, const ChoiceOptions *o)
{
    Arena tmp = {0};
    *c = (Choice){0};
    if (o->context < 2)
        FAIL(ERR_RANGE, "a context of %lld tokens: at least 2 are needed",
             (long long)o->context);
    if (o->shots < 0)
        FAIL(ERR_RANGE, "%lld examples before each question: 0 or more are needed",
             (long long)o->shots);
    TRY(name_it(c, a, path));
    Status s = load(c, a, &tmp, t, o);
    arena_close(&tmp);
    return s;
}

/* --- answers --- */

/* numpy.argmax: the first of the largest, the first NaN before all numbers. */
static int64_t first_largest(const double *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return i;
        if (x[i] > x[best])
            best = i;
    }
    return best;
}

static int64_t first_largest_norm(const double *x, const ChoiceRequest *r, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return i;
        if (x[i] / (double)r[i].length > x[best] / (double)r[best].length)
            best = i;
    }
    return best;
}

void choice_correct(uint8_t *correct, uint8_t *norm, const Choice *c, const double *loglik)
{
    for (int64_t i = 0; i < c->n; i++) {
        int64_t first = c->first[i], n = c->first[i + 1] - first;
        correct[i] = first_largest(loglik + first, n) == c->gold[i];
        if (norm)
            norm[i] = first_largest_norm(loglik + first, c->requests + first, n) == c->gold[i];
    }
}
