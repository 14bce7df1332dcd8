/* study.c - the cells of the accuracy table, their tasks and scores. */
#include "analysis/study.h"

#include <math.h>
#include <string.h>

/* --- setting up --- */

static Status check_options(const StudyOptions *o)
{
    for (int64_t i = 0; i < o->n_bits; i++) {
        int b = o->bits[i];
        if (b != 16 && b != 8 && b != 6 && b != 4)
            FAIL(ERR_RANGE, "attention logits of %d bits: 16, 8, 6 or 4 are possible", b);
    }
    if (o->n_weights < 1 || o->n_bits < 1)
        FAIL(ERR_RANGE, "a study of %lld kinds of weights and %lld of logits has no cells",
             (long long)o->n_weights, (long long)o->n_bits);
    if (o->divergence && !o->text)
        FAIL(ERR_RANGE, "the distance from the unquantized model needs a text");
    return OK;
}

static Status list_sources(Study *s)
{
    const StudyOptions *o = &s->o;
    int64_t            *items;
    ARENA_NEW(items, s->arena, o->n_files + 2 * o->n_choices + 1);
    for (int64_t f = 0; f < o->n_files; f++) {
        items[s->n_sources++] = o->files[f].n;
        s->n_tasks += o->files[f].n_tasks;
    }
    for (int64_t f = 0; f < o->n_choices; f++)
        for (int way = 0; way <= o->choices[f].has_norm; way++) {
            items[s->n_sources++] = o->choices[f].n;
            s->n_tasks++;
        }
    if (o->orders) {
        items[s->n_sources++] = o->orders->n_permutations * o->orders->n_queries;
        s->n_tasks++;
    }
    s->source_items = items;
    return OK;
}

/* Items with a request that lost tokens. */
static int64_t truncated(const Choice *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        bool any = false;
        for (int64_t r = c->first[i]; r < c->first[i + 1]; r++)
            any |= c->requests[r].truncated;
        n += any;
    }
    return n;
}

static Status list_tasks(Study *s)
{
    const StudyOptions *o = &s->o;
    StudyTask          *t;
    ARENA_NEW(s->tasks, s->arena, s->n_tasks);
    t = s->tasks;
    for (int64_t f = 0; f < o->n_files; f++)
        for (int64_t i = 0; i < o->files[f].n_tasks; i++) {
            const RetrievalTask *r = &o->files[f].tasks[i];
            *t++ = (StudyTask){r->name, r->n, r->items, f, r->n_truncated, 1};
        }
    int64_t source = o->n_files;
    for (int64_t f = 0; f < o->n_choices; f++) {
        const Choice *c = &o->choices[f];
        *t++ = (StudyTask){c->name, c->n, NULL, source++, truncated(c), 1};
        if (!c->has_norm)
            continue;
        *t = (StudyTask){arena_printf(s->arena, "%s norm", c->name), c->n, NULL, source++,
                         truncated(c), 1};
        if (!t++->name)
            FAIL(ERR_MEMORY, "out of memory for the name of a task");
    }
    if (o->orders)
        *t = (StudyTask){o->orders->name, s->source_items[source], NULL, source, 0,
                         o->orders->n_permutations};
    return OK;
}

static Status check_tasks(const Study *s)
{
    if (s->n_tasks == 0 && !s->o.text)
        FAIL(ERR_RANGE, "a study needs a text or a task");
    for (int64_t i = 0; i < s->n_tasks; i++)
        for (int64_t j = 0; j < i; j++)
            if (strcmp(s->tasks[i].name, s->tasks[j].name) == 0)
                FAIL(ERR_RANGE, "two tasks are named %s: rename one of the files",
                     s->tasks[i].name);
    return OK;
}

static Status init_cell(Study *s, StudyCell *c)
{
    c->text = (Perplexity){.nll = NAN, .nll_error = NAN, .perplexity = NAN, .accuracy = NAN,
                           .word_perplexity = NAN, .byte_perplexity = NAN,
                           .bits_per_byte = NAN};
    ARENA_NEW(c->tasks, s->arena, s->n_tasks);
    ARENA_NEW(c->correct, s->arena, s->n_sources);
    for (int64_t i = 0; i < s->n_tasks; i++)
        c->tasks[i] = (TaskScore){.accuracy = NAN, .error = NAN};
    for (int64_t i = 0; i < s->n_sources; i++)
        ARENA_NEW(c->correct[i], s->arena, s->source_items[i]);
    return OK;
}

static int64_t count_tokens(const StudyOptions *o)
{
    int64_t n = o->text ? o->text->n_tokens : 0;
    for (int64_t f = 0; f < o->n_files; f++)
        n += o->files[f].seq.start[o->files[f].n];
    for (int64_t f = 0; f < o->n_choices; f++)
        n += o->choices[f].seq.start[o->choices[f].n_requests];
    return n + (o->orders ? o->orders->n_tokens : 0);
}

Status study_init(Study *s, Arena *a, const StudyOptions *o)
{
    *s = (Study){.o = *o, .arena = a};
    TRY(check_options(o));
    TRY(list_sources(s));
    TRY(list_tasks(s));
    TRY(check_tasks(s));
    int64_t n = o->n_weights * o->n_bits;
    ARENA_NEW(s->given, a, s->n_sources);
    ARENA_NEW(s->given_nan, a, s->n_sources);
    ARENA_NEW(s->cells, a, n);
    for (int64_t i = 0; i < n; i++)
        TRY(init_cell(s, &s->cells[i]));
    s->cell_tokens = count_tokens(o);
    s->total = s->cell_tokens * n;
    return OK;
}

StudyCell *study_cell(const Study *s, int64_t weights, int64_t bits)
{
    CHECK(weights >= 0 && weights < s->o.n_weights && bits >= 0 && bits < s->o.n_bits);
    return &s->cells[weights * s->o.n_bits + bits];
}

int64_t study_exact(const Study *s)
{
    for (int64_t b = 0; b < s->o.n_bits; b++)
        if (s->o.bits[b] == STUDY_EXACT_BITS)
            return b;
    return -1;
}

bool study_finished(const Study *s, int64_t i)
{
    bool all = true;
    for (int64_t b = 0; b < s->o.n_bits; b++)
        all &= study_cell(s, i, b)->done;
    return all;
}

/* --- scores --- */

double study_question(const StudyTask *t, const uint8_t *correct, int64_t i)
{
    int64_t n = t->n / t->turns, right = 0;
    for (int64_t k = i; k < t->n; k += n)
        right += correct[t->items ? t->items[k] : k];
    return (double)right / (double)t->turns;
}

/* Of questions that are asked several times: from the spread of the questions' means. */
static double turns_error(const StudyTask *t, const uint8_t *correct, double mean)
{
    int64_t n = t->n / t->turns;
    double  sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = study_question(t, correct, i) - mean;
        sum += d * d;
    }
    return n > 1 ? sqrt(sum / ((double)n - 1) / (double)n) : NAN;
}

static TaskScore score_task(const StudyTask *t, const uint8_t *correct)
{
    int64_t right = 0;
    for (int64_t i = 0; i < t->n; i++)
        right += correct[t->items ? t->items[i] : i];
    TaskScore s = task_score(t->n, right);
    if (t->turns > 1)
        s.error = turns_error(t, correct, s.accuracy);
    return s;
}

void study_score(const Study *s, StudyCell *c)
{
    for (int64_t i = 0; i < s->n_tasks; i++)
        c->tasks[i] = score_task(&s->tasks[i], c->correct[s->tasks[i].source]);
}
