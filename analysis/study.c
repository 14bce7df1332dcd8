/* study.c - runs the cells of the accuracy table and lays them out as series. */
#include "analysis/study.h"

#include <math.h>
#include <string.h>

static Status check_bits(const StudyOptions *o)
{
    for (int64_t i = 0; i < o->n_bits; i++) {
        int b = o->bits[i];
        if (b != 16 && b != 8 && b != 6 && b != 4)
            FAIL(ERR_RANGE, "attention logits of %d bits: 16, 8, 6 or 4 are possible", b);
    }
    if (o->n_weights < 1 || o->n_bits < 1)
        FAIL(ERR_RANGE, "a study of %lld kinds of weights and %lld of logits has no cells",
             (long long)o->n_weights, (long long)o->n_bits);
    return OK;
}

static Status list_tasks(Study *s)
{
    for (int64_t f = 0; f < s->o.n_files; f++)
        s->n_tasks += s->o.files[f].n_tasks;
    if (s->n_tasks == 0 && !s->o.text)
        FAIL(ERR_RANGE, "a study needs a text or a task");
    ARENA_NEW(s->tasks, s->arena, s->n_tasks);
    int64_t n = 0;
    for (int64_t f = 0; f < s->o.n_files; f++)
        for (int64_t i = 0; i < s->o.files[f].n_tasks; i++)
            s->tasks[n++] = &s->o.files[f].tasks[i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            if (strcmp(s->tasks[i]->name, s->tasks[j]->name) == 0)
                FAIL(ERR_RANGE, "two tasks are named %s: rename one of the files",
                     s->tasks[i]->name);
    return OK;
}

static Status init_cell(Study *s, StudyCell *c)
{
    c->text = (Perplexity){.nll = NAN, .perplexity = NAN, .accuracy = NAN};
    ARENA_NEW(c->tasks, s->arena, s->n_tasks);
    ARENA_NEW(c->correct, s->arena, s->o.n_files);
    for (int64_t i = 0; i < s->n_tasks; i++)
        c->tasks[i] = (TaskScore){.accuracy = NAN, .error = NAN};
    for (int64_t f = 0; f < s->o.n_files; f++)
        ARENA_NEW(c->correct[f], s->arena, s->o.files[f].n);
    return OK;
}

Status study_init(Study *s, Arena *a, const StudyOptions *o)
{
    *s = (Study){.o = *o, .arena = a};
    TRY(check_bits(o));
    TRY(list_tasks(s));
    int64_t n = o->n_weights * o->n_bits;
    ARENA_NEW(s->cells, a, n);
    for (int64_t i = 0; i < n; i++)
        TRY(init_cell(s, &s->cells[i]));
    s->total = o->text ? o->text->n_tokens : 0;
    for (int64_t f = 0; f < o->n_files; f++)
        s->total += o->files[f].seq.start[o->files[f].n];
    s->total *= n;
    return OK;
}

StudyCell *study_cell(const Study *s, int64_t weights, int64_t bits)
{
    CHECK(weights >= 0 && weights < s->o.n_weights && bits >= 0 && bits < s->o.n_bits);
    return &s->cells[weights * s->o.n_bits + bits];
}

static Status run_files(Study *s, StudyCell *c, Scorer *sc)
{
    int64_t task = 0;
    for (int64_t f = 0; f < s->o.n_files; f++) {
        const Retrieval *r = &s->o.files[f];
        TRY(retrieval_run(r, sc, c->correct[f]));
        for (int64_t i = 0; i < r->n_tasks; i++)
            c->tasks[task++] = retrieval_score(&r->tasks[i], c->correct[f]);
    }
    return OK;
}

static Status run_cell(Study *s, int64_t weights, int64_t bits, Model *m)
{
    StudyCell *c = study_cell(s, weights, bits);
    Scorer     sc = {
        .model = m,
        .quant = {.bits = s->o.bits[bits], .scale = s->o.scale},
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
        TRY(perplexity_run(&c->text, &sc, s->o.text));
    TRY(run_files(s, c, &sc));
    s->done = sc.done;
    return OK;
}

Status study_weights(Study *s, int64_t i, Model *m)
{
    for (int64_t b = 0; b < s->o.n_bits; b++)
        TRY(run_cell(s, i, b, m));
    return OK;
}

/* "a,b,c" in the set's arena. */
static Status join_names(const char **out, SeriesSet *set, int64_t n, const char *next,
                         const char *joined)
{
    *out = arena_printf(set->arena, "%s%s%s", joined, n ? "," : "", next);
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory for names");
}

static Status add_names(const Study *s, SeriesSet *set)
{
    const char *tasks = "", *weights = "";
    for (int64_t i = 0; i < s->n_tasks; i++)
        TRY(join_names(&tasks, set, i, s->tasks[i]->name, tasks));
    for (int64_t i = 0; i < s->o.n_weights; i++)
        TRY(join_names(&weights, set, i, s->o.weights[i], weights));
    const char *convention = arena_printf(
        set->arena, "%s%s%s", s->o.text ? s->o.text->convention : "",
        s->o.text && s->n_tasks ? " " : "",
        s->n_tasks ? "Tasks: exact match of the greedily decoded answer, tokens split as in "
                     "lm-evaluation-harness; error is sample stddev / sqrt(n)." : "");
    if (!convention)
        FAIL(ERR_MEMORY, "out of memory for the convention");
    TRY(series_attr_text(set, "eval_tasks", tasks));
    TRY(series_attr_text(set, "eval_weights", weights));
    TRY(series_attr_text(set, "eval_logit_scale", logit_scale_name(s->o.scale)));
    return series_attr_text(set, "eval_convention", convention);
}

static Status add_bits(const Study *s, SeriesSet *set)
{
    Series *out;
    TRY(series_add(set, &out, SERIES_I32, "logit_bits", "bit",
                   "Bits of the attention logits; 16: not quantized.", 1,
                   (const char *const[]){"logit_bits"}, (int64_t[]){s->o.n_bits}));
    for (int64_t i = 0; i < s->o.n_bits; i++)
        ((int32_t *)out->data)[i] = s->o.bits[i];
    return OK;
}

static Status add_text(const Study *s, SeriesSet *set)
{
    static const char *const DIMS[] = {"weights", "logit_bits"};
    int64_t shape[] = {s->o.n_weights, s->o.n_bits}, n = shape[0] * shape[1];
    Series *out;
    TRY(series_add(set, &out, SERIES_F64, "eval/perplexity", "",
                   "Perplexity of the text: exp of the mean negative log-likelihood.", 2, DIMS,
                   shape));
    for (int64_t i = 0; i < n; i++)
        ((double *)out->data)[i] = s->cells[i].text.perplexity;
    TRY(series_add(set, &out, SERIES_F64, "eval/nll", "nat",
                   "Mean negative log-likelihood of a token.", 2, DIMS, shape));
    for (int64_t i = 0; i < n; i++)
        ((double *)out->data)[i] = s->cells[i].text.nll;
    return OK;
}

static Status add_tasks(const Study *s, SeriesSet *set)
{
    static const char *const DIMS[] = {"task", "weights", "logit_bits"};
    int64_t shape[] = {s->n_tasks, s->o.n_weights, s->o.n_bits}, n = shape[1] * shape[2];
    Series *out;
    TRY(series_add(set, &out, SERIES_F64, "eval/accuracy", "",
                   "Share of episodes answered exactly.", 3, DIMS, shape));
    for (int64_t i = 0; i < s->n_tasks * n; i++)
        ((double *)out->data)[i] = s->cells[i % n].tasks[i / n].accuracy;
    TRY(series_add(set, &out, SERIES_F64, "eval/stderr", "",
                   "Standard error of the accuracy.", 3, DIMS, shape));
    for (int64_t i = 0; i < s->n_tasks * n; i++)
        ((double *)out->data)[i] = s->cells[i % n].tasks[i / n].error;
    TRY(series_add(set, &out, SERIES_I64, "eval/items", "", "Episodes of the task.", 1, DIMS,
                   shape));
    for (int64_t i = 0; i < s->n_tasks; i++)
        ((int64_t *)out->data)[i] = s->tasks[i]->n;
    return OK;
}

Status study_series(const Study *s, SeriesSet *set)
{
    TRY(add_names(s, set));
    TRY(add_bits(s, set));
    if (s->o.text)
        TRY(add_text(s, set));
    return s->n_tasks ? add_tasks(s, set) : OK;
}
