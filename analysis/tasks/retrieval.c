/* retrieval.c - episodes as tokens, and whether the model finds the answers. */
#include "analysis/retrieval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/tasks/episode.h"
#include "analysis/tasks/task_name.h"
#include "kernels/size.h"

enum { MAX_TASKS = 100 };  // rows of a table that anyone would read

/* One episode as the model gets it. */
typedef struct {
    int32_t *ids;         // [n + 1] of context and answer; the last is only a target
    int64_t  n;           // rows
    int64_t  first;       // row that predicts the answer's first token
    Span     span;
    bool     truncated;
    uint8_t *given;       // [n + 1] tokens that are told, not asked
} Question;

typedef struct {
    Tokenizer  *tokenizer;
    const char *path;
    int64_t     context;
    int32_t     bos;
} Maker;

/* Tokens that share a byte with [first, end): the span, in tokens of the text. */
static Span tokens_of(const int64_t *begin, int64_t n, size_t first, size_t end)
{
    Span s = {0};
    while (s.first + 1 < n && begin[s.first + 1] <= (int64_t)first)
        s.first++;
    s.end = s.first;
    while (s.end < n && begin[s.end] < (int64_t)end)
        s.end++;
    return s;
}

/* Context and answer as tokens, before they are cut to the context's length. */
typedef struct {
    int32_t *ids;         // [n]
    uint8_t *given;       // [n] begins within a given part
    int64_t  n, n_context;
} Whole;

static Status mark_given(Whole *w, Arena *a, const Maker *mk, const Episode *e,
                         const int64_t *begin)
{
    int64_t asked = w->n - w->n_context;
    ARENA_NEW(w->given, a, w->n);
    for (int64_t g = 0; g < e->n_given; g++)
        for (int64_t i = w->n_context; i < w->n; i++)
            if (begin[i] >= (int64_t)e->given[g].first && begin[i] < (int64_t)e->given[g].end) {
                w->given[i] = 1;
                asked--;
            }
    if (w->n > w->n_context && asked < 1)
        FAIL(ERR_RANGE, "%s:%lld: all of the answer is given, nothing is asked", mk->path,
             (long long)e->line);
    return OK;
}

/* What is too long loses `drop` tokens on the left; BOS comes in front. */
static Status lay_out(Question *q, Arena *a, const Maker *mk, const Episode *e, const Whole *w)
{
    int64_t bos = mk->bos >= 0, n = w->n, drop = i64_max(0, bos + n - 1 - mk->context);
    int64_t kept = w->n_context - drop;
    if (n <= w->n_context)
        FAIL(ERR_RANGE, "%s:%lld: the answer adds no token to the context", mk->path,
             (long long)e->line);
    if (kept < 0 || kept + bos < 1)
        FAIL(ERR_RANGE, "%s:%lld: an answer of %lld tokens does not fit a context of %lld",
             mk->path, (long long)e->line, (long long)(n - w->n_context),
             (long long)mk->context);
    q->n = bos + n - drop - 1;
    q->first = bos + kept - 1;
    q->truncated = drop > 0;
    q->span.first = (int32_t)(i64_max(0, q->span.first - drop) + bos);
    q->span.end = (int32_t)(i64_max(0, q->span.end - drop) + bos);
    ARENA_NEW(q->ids, a, q->n + 1);
    ARENA_NEW(q->given, a, q->n + 1);
    if (bos)
        q->ids[0] = mk->bos;
    memcpy(q->ids + bos, w->ids + drop, (size_t)(n - drop) * sizeof *w->ids);
    memcpy(q->given + bos, w->given + drop, (size_t)(n - drop));
    return OK;
}

static Status ask(Question *q, Arena *a, const Maker *mk, const Episode *e)
{
    Arena    tmp = {0};
    Status   s = OK;
    Whole    w;
    int32_t *context;
    int64_t *begin;
    GUARD(tokenizer_encode(mk->tokenizer, &tmp, e->text, e->n_text, false, &w.ids, &w.n,
                           &begin));
    GUARD(tokenizer_encode(mk->tokenizer, &tmp, e->text, e->n_context, false, &context,
                           &w.n_context, NULL));
    q->span = tokens_of(begin, w.n, e->span.first, e->span.end);
    GUARD(mark_given(&w, &tmp, mk, e, begin));
    GUARD(lay_out(q, a, mk, e, &w));
out:
    arena_close(&tmp);
    return s;
}

/* Questions end to end as sequences. */
static Status join(Sequences *out, Arena *a, const Question *q, int64_t n)
{
    int64_t *start, rows = 0;
    int32_t *ids, *targets;
    Span    *spans;
    ARENA_NEW(start, a, n + 1);
    ARENA_NEW(spans, a, n);
    for (int64_t i = 0; i < n; i++) {
        rows += q[i].n;
        start[i + 1] = rows;
        spans[i] = q[i].span;
    }
    ARENA_NEW(ids, a, rows);
    ARENA_NEW(targets, a, rows);
    for (int64_t i = 0; i < n; i++) {
        memcpy(ids + start[i], q[i].ids, (size_t)q[i].n * sizeof *ids);
        for (int64_t t = 0; t < q[i].n; t++)
            targets[start[i] + t] = t < q[i].first || q[i].given[t + 1] ? -1
                                                                        : q[i].ids[t + 1];
    }
    *out = (Sequences){.n = n, .start = start, .ids = ids, .targets = targets, .spans = spans};
    return OK;
}

static Status keep_facts(Retrieval *r, Arena *a, const Episode *e, const Question *q)
{
    const char **ids;
    int64_t     *needles;
    uint8_t     *truncated;
    ARENA_NEW(ids, a, r->n);
    ARENA_NEW(needles, a, r->n);
    ARENA_NEW(truncated, a, r->n);
    for (int64_t i = 0; i < r->n; i++) {
        ids[i] = arena_text(a, e[i].id, strlen(e[i].id));
        if (!ids[i])
            FAIL(ERR_MEMORY, "%s: out of memory for ids", r->path);
        needles[i] = e[i].needles;
        truncated[i] = q[i].truncated;
    }
    r->ids = ids;
    r->needles = needles;
    r->truncated = truncated;
    return OK;
}

/* "folder/retrieval.jsonl" and 4 -> "retrieval-n4" */
static const char *name_with(Arena *a, const char *path, int64_t needles)
{
    const char *name = task_name(a, path);
    return name ? arena_printf(a, "%s-n%lld", name, (long long)needles) : NULL;
}

/* The smallest number of needles above `above`; -1 if there is none. */
static int64_t next_needles(const Retrieval *r, int64_t above)
{
    int64_t next = -1;
    for (int64_t i = 0; i < r->n; i++)
        if (r->needles[i] > above && (next < 0 || r->needles[i] < next))
            next = r->needles[i];
    return next;
}

static Status make_task(RetrievalTask *t, Arena *a, const Retrieval *r, int64_t needles)
{
    int64_t *items;
    ARENA_NEW(items, a, r->n);
    *t = (RetrievalTask){.name = name_with(a, r->path, needles), .needles = needles,
                         .items = items};
    if (!t->name)
        FAIL(ERR_MEMORY, "%s: out of memory for a task", r->path);
    for (int64_t i = 0; i < r->n; i++)
        if (r->needles[i] == needles) {
            items[t->n++] = i;
            t->n_truncated += r->truncated[i];
        }
    return OK;
}

static Status make_tasks(Retrieval *r, Arena *a)
{
    for (int64_t k = next_needles(r, 0); k > 0; k = next_needles(r, k))
        if (++r->n_tasks > MAX_TASKS)
            FAIL(ERR_RANGE, "%s: more than %d different numbers of needles", r->path,
                 MAX_TASKS);
    ARENA_NEW(r->tasks, a, r->n_tasks);
    int64_t needles = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        needles = next_needles(r, needles);
        TRY(make_task(&r->tasks[i], a, r, needles));
    }
    return OK;
}

static Status ask_all(Retrieval *r, Arena *a, Arena *tmp, const Maker *mk, const Episode *e)
{
    Question *questions;
    ARENA_NEW(questions, tmp, r->n);
    for (int64_t i = 0; i < r->n; i++)
        TRY(ask(&questions[i], tmp, mk, &e[i]));
    TRY(keep_facts(r, a, e, questions));
    TRY(join(&r->seq, a, questions, r->n));
    return make_tasks(r, a);
}

Status episodes_ask(Retrieval *r, Arena *a, Tokenizer *t, const char *path, const Episode *e,
                    int64_t n, int64_t context, bool no_bos)
{
    Arena tmp = {0};
    Maker mk = {t, path, context, windows_bos(t, no_bos)};
    if (context < 2)
        FAIL(ERR_RANGE, "a context of %lld tokens: at least 2 are needed", (long long)context);
    *r = (Retrieval){.path = arena_text(a, path, strlen(path)), .n = n};
    if (!r->path)
        FAIL(ERR_MEMORY, "%s: out of memory", path);
    Status s = ask_all(r, a, &tmp, &mk, e);
    arena_close(&tmp);
    return s;
}

Status retrieval_load(Retrieval *r, Arena *a, Tokenizer *t, const char *path, int64_t context,
                      bool no_bos)
{
    Arena    tmp = {0};
    Episode *episodes;
    int64_t  n;
    Status   s = episodes_read(&episodes, &n, &tmp, path);
    if (s == OK)
        s = episodes_ask(r, a, t, path, episodes, n, context, no_bos);
    arena_close(&tmp);
    return s;
}

static Status run(const Retrieval *r, Arena *a, Scorer *sc, uint8_t *correct)
{
    const Sequences *s = &r->seq;
    float   *logprob;
    int32_t *best;
    ARENA_NEW(logprob, a, s->start[s->n]);
    ARENA_NEW(best, a, s->start[s->n]);
    TRY(score_run(sc, s, logprob, best));
    for (int64_t i = 0; i < s->n; i++) {
        correct[i] = 1;
        for (int64_t t = s->start[i]; t < s->start[i + 1]; t++)
            if (s->targets[t] >= 0 && best[t] != s->targets[t])
                correct[i] = 0;
    }
    return OK;
}

Status retrieval_run(const Retrieval *r, Scorer *sc, uint8_t *correct)
{
    Arena  a = {0};
    Status s = run(r, &a, sc, correct);
    arena_close(&a);
    return s;
}

TaskScore task_score(int64_t n, int64_t n_correct)
{
    TaskScore s = {.n = n, .n_correct = n_correct};
    s.accuracy = (double)n_correct / (double)n;
    /* sqrt(sum (x - p)^2 / (n - 1)) / sqrt(n), x being 0 or 1 */
    s.error = n > 1 ? sqrt(s.accuracy * (1 - s.accuracy) / ((double)n - 1)) : NAN;
    return s;
}

TaskScore retrieval_score(const RetrievalTask *task, const uint8_t *correct)
{
    int64_t right = 0;
    for (int64_t i = 0; i < task->n; i++)
        right += correct[task->items[i]];
    return task_score(task->n, right);
}
