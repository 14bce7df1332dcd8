/* study.c - runs the cells of the accuracy table. */
#include "analysis/study.h"

#include <math.h>
#include <string.h>

enum { EXACT_BITS = 16 };

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

static Status list_tasks(Study *s)
{
    const StudyOptions *o = &s->o;
    StudyTask          *t;
    ARENA_NEW(s->tasks, s->arena, s->n_tasks);
    t = s->tasks;
    for (int64_t f = 0; f < o->n_files; f++)
        for (int64_t i = 0; i < o->files[f].n_tasks; i++) {
            const RetrievalTask *r = &o->files[f].tasks[i];
            *t++ = (StudyTask){r->name, r->n, r->items, f, 1};
        }
    int64_t source = o->n_files;
    for (int64_t f = 0; f < o->n_choices; f++) {
        const Choice *c = &o->choices[f];
        *t++ = (StudyTask){c->name, c->n, NULL, source++, 1};
        if (!c->has_norm)
            continue;
        *t = (StudyTask){arena_printf(s->arena, "%s norm", c->name), c->n, NULL, source++, 1};
        if (!t++->name)
            FAIL(ERR_MEMORY, "out of memory for the name of a task");
    }
    if (o->orders)
        *t = (StudyTask){o->orders->name, s->source_items[source], NULL, source,
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
        if (s->o.bits[b] == EXACT_BITS)
            return b;
    return -1;
}

Status study_give(Study *s, int64_t source, const uint8_t *correct)
{
    uint8_t *copy;
    CHECK(source >= 0 && source < s->n_sources);
    ARENA_NEW(copy, s->arena, s->source_items[source]);
    memcpy(copy, correct, (size_t)s->source_items[source]);
    s->given[source] = copy;
    return OK;
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

static Status run_choice(const Choice *c, Scorer *sc, uint8_t *correct, uint8_t *norm)
{
    Arena   a = {0};
    double *loglik = arena_alloc(&a, c->n_requests, sizeof *loglik);
    Status  s = loglik ? choice_run(c, sc, loglik, NULL)
                       : STATUS(ERR_MEMORY, "out of memory for %s", c->name);
    if (s == OK)
        choice_correct(correct, norm, c, loglik);
    arena_close(&a);
    return s;
}

static bool is_exact(const Study *s, const StudyCell *c)
{
    int64_t exact = study_exact(s);
    return exact >= 0 && c == study_cell(s, 0, exact);
}

static Status run_file(const Study *s, StudyCell *c, Scorer *sc, int64_t f)
{
    const Retrieval *r = &s->o.files[f];
    if (!s->given[f] || !is_exact(s, c))
        return retrieval_run(r, sc, c->correct[f]);
    memcpy(c->correct[f], s->given[f], (size_t)r->n);
    sc->done += r->seq.start[r->n];
    progress_step(sc->progress, sc->done, sc->total, sc->what);
    return OK;
}

static Status run_tasks(const Study *s, StudyCell *c, Scorer *sc)
{
    int64_t source = 0;
    for (int64_t f = 0; f < s->o.n_files; f++)
        TRY(run_file(s, c, sc, source++));
    for (int64_t f = 0; f < s->o.n_choices; f++) {
        const Choice *choice = &s->o.choices[f];
        uint8_t      *norm = choice->has_norm ? c->correct[source + 1] : NULL;
        TRY(run_choice(choice, sc, c->correct[source], norm));
        source += 1 + choice->has_norm;
    }
    if (s->o.orders)
        TRY(shots_run(s->o.orders, sc, c->correct[source], NULL));
    study_score(s, c);
    return OK;
}

/* --- cells --- */

static Status run_text(const Study *s, StudyCell *c, Scorer *sc, Model *reference,
                       bool quantized)
{
    TRY(perplexity_run_windows(&c->text, s->arena, sc, s->o.text));
    if (!s->o.divergence || !quantized)
        return OK;
    CHECK(reference != NULL);
    Scorer exact = {.model = reference,
                    .quant = model_run(reference, (RunQuant){.bits = EXACT_BITS}),
                    .batch_tokens = s->o.batch_tokens};
    Scorer again = *sc;
    again.progress = NULL;  // the text was counted
    return divergence_run(&c->divergence, &again, &exact, s->o.text);
}

static Status run_cell(Study *s, int64_t weights, int64_t bits, Model *m, Model *reference)
{
    StudyCell *c = study_cell(s, weights, bits);
    RunQuant   quant = s->o.runs ? s->o.runs[weights] : (RunQuant){0};
    quant.bits = s->o.bits[bits];
    quant.scale = s->o.scale;
    Scorer sc = {
        .model = m,
        .quant = model_run(m, quant),
        .batch_tokens = s->o.batch_tokens,
        .progress = s->o.progress,
        .done = s->done,
        .total = s->total,
    };
    sc.what = arena_printf(s->arena, "%s, logits of %d bits", s->o.weights[weights],
                           s->o.bits[bits]);
    if (!sc.what)
        FAIL(ERR_MEMORY, "out of memory for a study");
    if (s->o.text)
        TRY(run_text(s, c, &sc, reference, weights > 0 || quant.bits != EXACT_BITS));
    TRY(run_tasks(s, c, &sc));
    c->done = true;
    return s->o.folder ? study_save(s, weights, bits) : OK;
}

Status study_weights(Study *s, int64_t i, Model *m, Model *reference)
{
    for (int64_t b = 0; b < s->o.n_bits; b++) {
        if (!study_cell(s, i, b)->done)
            TRY(run_cell(s, i, b, m, reference));
        s->done += s->cell_tokens;
    }
    return OK;
}
