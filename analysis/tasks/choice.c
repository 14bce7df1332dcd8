/* choice.c - a task's questions as token sequences, and which were answered right. */
#include "analysis/choice.h"

#include <math.h>
#include <string.h>

#include "analysis/tasks/choice_item.h"
#include "analysis/tasks/choice_shots.h"
#include "analysis/tasks/choice_tokens.h"
#include "analysis/tasks/task_name.h"
#include "kernels/size.h"

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

/* What the making of requests needs; requests [n_requests] and rows alike. */
typedef struct {
    ChoiceTokens   tokens;
    ChoiceShots    shots;
    ChoiceRow     *rows;
    ChoiceRequest *requests;
} Maker;

static Status ask(Choice *c, Arena *a, Maker *mk, const ChoiceItem *it, int64_t item)
{
    Arena       tmp = {0};
    Status      s = OK;
    const char *shots;
    int64_t     first = c->first[item];
    GUARD(choice_shots_text(&shots, &tmp, &mk->shots, it));
    GUARD(choice_tokens_item(&mk->rows[first], a, &mk->tokens, shots, it));
    for (int64_t j = 0; j < it->n; j++) {
        bool truncated = mk->rows[first + j].truncated;
        mk->requests[first + j] = (ChoiceRequest){.item = item, .choice = j,
                                                  .length = code_points(it->choice[j]),
                                                  .truncated = truncated};
        c->n_truncated += truncated;
    }
out:
    arena_close(&tmp);
    return s;
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
    Maker mk;
    choice_tokens_init(&mk.tokens, t, c->path, o);
    TRY(choice_shots_init(&mk.shots, tmp, c->path, items, c->n, c->kind, o));
    ARENA_NEW(mk.rows, tmp, c->n_requests);
    ARENA_NEW(mk.requests, a, c->n_requests);
    for (int64_t i = 0; i < c->n; i++)
        TRY(ask(c, tmp, &mk, &items[i], i));
    c->requests = mk.requests;
    return join(&c->seq, a, mk.rows, c->n_requests);
}

static Status name_it(Choice *c, Arena *a, const char *path)
{
    c->path = arena_text(a, path, strlen(path));
    c->name = task_name(a, path);
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
