/* study_series.c - the cells of a study as series: figures, items, paired tests. */
#include "analysis/study.h"

#include <math.h>
#include <string.h>

static const char *const CELL_DIMS[] = {"weights", "logit_bits"};
static const char *const TASK_DIMS[] = {"task", "weights", "logit_bits"};

static int64_t n_cells(const Study *s)
{
    return s->o.n_weights * s->o.n_bits;
}

/* --- names --- */

/* "a,b,c" in the set's arena. */
static Status join_names(const char **out, SeriesSet *set, int64_t n, const char *next,
                         const char *joined)
{
    *out = arena_printf(set->arena, "%s%s%s", joined, n ? "," : "", next);
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory for names");
}

static const char RETRIEVAL_WORDS[] =
    " Retrieval: exact match of the greedily decoded answer, tokens split as in "
    "lm-evaluation-harness.";
static const char CHOICE_WORDS[] =
    " Multiple choice: as lm-evaluation-harness scores it, the choice of the largest "
    "log-likelihood; norm: divided by the characters of the choice.";
static const char ORDER_WORDS[] =
    " Orders: the same questions after the same demonstrations in other orders; errors and "
    "tests are of a question's mean over the orders.";
static const char ERROR_WORDS[] = " Errors are sample stddev / sqrt(n).";

static Status add_names(const Study *s, SeriesSet *set)
{
    const char *tasks = "", *weights = "";
    for (int64_t i = 0; i < s->n_tasks; i++)
        TRY(join_names(&tasks, set, i, s->tasks[i].name, tasks));
    for (int64_t i = 0; i < s->o.n_weights; i++)
        TRY(join_names(&weights, set, i, s->o.weights[i], weights));
    const char *convention = arena_printf(
        set->arena, "%s%s%s%s%s", s->o.text ? s->o.text->convention : "",
        s->o.n_files ? RETRIEVAL_WORDS : "", s->o.n_choices ? CHOICE_WORDS : "",
        s->o.orders ? ORDER_WORDS : "", s->n_tasks ? ERROR_WORDS : "");
    if (!convention)
        FAIL(ERR_MEMORY, "out of memory for the convention");
    TRY(series_attr_text(set, "eval_tasks", tasks));
    TRY(series_attr_text(set, "eval_weights", weights));
    TRY(series_attr_text(set, "eval_logit_scale", logit_scale_name(s->o.scale)));
    return series_attr_text(set, "eval_convention", convention + (*convention == ' '));
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

/* --- a figure of each cell, in doubles --- */

typedef double (*CellFigure)(const StudyCell *c);

static double perplexity_of(const StudyCell *c) { return c->text.perplexity; }
static double nll_of(const StudyCell *c) { return c->text.nll; }
static double nll_error_of(const StudyCell *c) { return c->text.nll_error; }
static double word_of(const StudyCell *c) { return c->text.word_perplexity; }
static double byte_of(const StudyCell *c) { return c->text.byte_perplexity; }
static double bits_of(const StudyCell *c) { return c->text.bits_per_byte; }

/* NaN where nothing was compared: of the unquantized cell, and of what was not run. */
static double kl_of(const StudyCell *c)
{
    return c->divergence.n ? c->divergence.kl : NAN;
}
static double kl_error_of(const StudyCell *c)
{
    return c->divergence.n ? c->divergence.kl_error : NAN;
}
static double kl_max_of(const StudyCell *c)
{
    return c->divergence.n ? c->divergence.kl_max : NAN;
}
static double top1_of(const StudyCell *c)
{
    return c->divergence.n ? c->divergence.top1 : NAN;
}
static double top1_error_of(const StudyCell *c)
{
    return c->divergence.n ? c->divergence.top1_error : NAN;
}
static double dp_of(const StudyCell *c)
{
    return c->divergence.n ? c->divergence.dp_rms : NAN;
}

typedef struct {
    const char *name, *unit, *about;
    CellFigure  of;
} Figure;

static const Figure TEXT_FIGURES[] = {
    {"eval/perplexity", "", "Perplexity of the text: exp of the mean negative log-likelihood.",
     perplexity_of},
    {"eval/nll", "nat", "Mean negative log-likelihood of a token.", nll_of},
    {"eval/nll_stderr", "nat", "Its standard error, from the spread between windows.",
     nll_error_of},
};
/* Of a text that is scored whole. */
static const Figure BYTE_FIGURES[] = {
    {"eval/word_perplexity", "", "Perplexity of a word of the text.", word_of},
    {"eval/byte_perplexity", "", "Perplexity of a byte of the text.", byte_of},
    {"eval/bits_per_byte", "bit", "Bits that a byte of the text takes.", bits_of},
};
static const Figure DIVERGENCE_FIGURES[] = {
    {"eval/kl", "nat", "Mean KL divergence from the unquantized model's predictions.", kl_of},
    {"eval/kl_stderr", "nat", "Its standard error.", kl_error_of},
    {"eval/kl_max", "nat", "The largest KL divergence of a position.", kl_max_of},
    {"eval/top1", "", "Share of positions with the unquantized model's first choice.", top1_of},
    {"eval/top1_stderr", "", "Its standard error.", top1_error_of},
    {"eval/dp_rms", "", "Root mean square change of the true token's probability.", dp_of},
};

static Status add_figures(const Study *s, SeriesSet *set, const Figure *f, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        Series *out;
        TRY(series_add(set, &out, SERIES_F64, f[k].name, f[k].unit, f[k].about, 2, CELL_DIMS,
                       (int64_t[]){s->o.n_weights, s->o.n_bits}));
        for (int64_t i = 0; i < n_cells(s); i++)
            ((double *)out->data)[i] = f[k].of(&s->cells[i]);
    }
    return OK;
}

static Status add_quantiles(const Study *s, SeriesSet *set)
{
    Series *at, *kl;
    TRY(series_add(set, &at, SERIES_F64, "kl_quantile", "", "Which quantiles.", 1,
                   (const char *const[]){"kl_quantile"}, (int64_t[]){DIVERGENCE_QUANTILES}));
    memcpy(at->data, DIVERGENCE_AT, sizeof DIVERGENCE_AT[0] * DIVERGENCE_QUANTILES);
    TRY(series_add(set, &kl, SERIES_F64, "eval/kl_quantiles", "nat",
                   "Quantiles of the KL divergence over positions.", 3,
                   (const char *const[]){"weights", "logit_bits", "kl_quantile"},
                   (int64_t[]){s->o.n_weights, s->o.n_bits, DIVERGENCE_QUANTILES}));
    for (int64_t i = 0; i < n_cells(s); i++)
        for (int q = 0; q < DIVERGENCE_QUANTILES; q++)
            ((double *)kl->data)[i * DIVERGENCE_QUANTILES + q] =
                s->cells[i].divergence.n ? s->cells[i].divergence.kl_quantiles[q] : NAN;
    return OK;
}

/* --- tasks --- */

/* A choice of NaN comes first, an episode of NaN is mostly wrong: either is no answer. */
static Status add_nan(const Study *s, SeriesSet *set)
{
    Series *out;
    TRY(series_add(set, &out, SERIES_I64, "eval/nan", "",
                   "Tokens of the tasks' answers whose log-probability was NaN.", 2, CELL_DIMS,
                   (int64_t[]){s->o.n_weights, s->o.n_bits}));
    for (int64_t i = 0; i < n_cells(s); i++)
        ((int64_t *)out->data)[i] = s->cells[i].n_nan;
    return OK;
}

static Status add_tasks(const Study *s, SeriesSet *set)
{
    int64_t shape[] = {s->n_tasks, s->o.n_weights, s->o.n_bits}, n = n_cells(s);
    Series *out;
    TRY(series_add(set, &out, SERIES_F64, "eval/accuracy", "", "Share of items answered right.",
                   3, TASK_DIMS, shape));
    for (int64_t i = 0; i < s->n_tasks * n; i++)
        ((double *)out->data)[i] = s->cells[i % n].tasks[i / n].accuracy;
    TRY(series_add(set, &out, SERIES_F64, "eval/stderr", "",
                   "Standard error of the accuracy.", 3, TASK_DIMS, shape));
    for (int64_t i = 0; i < s->n_tasks * n; i++)
        ((double *)out->data)[i] = s->cells[i % n].tasks[i / n].error;
    TRY(series_add(set, &out, SERIES_I64, "eval/items", "", "Items of the task.", 1, TASK_DIMS,
                   shape));
    for (int64_t i = 0; i < s->n_tasks; i++)
        ((int64_t *)out->data)[i] = s->tasks[i].n;
    TRY(series_add(set, &out, SERIES_I64, "eval/truncated", "",
                   "Items that were longer than the context and lost tokens on the left.", 1,
                   TASK_DIMS, shape));
    for (int64_t i = 0; i < s->n_tasks; i++)
        ((int64_t *)out->data)[i] = s->tasks[i].n_truncated;
    return add_nan(s, set);
}

static int64_t task_item(const StudyTask *t, int64_t i)
{
    return t->items ? t->items[i] : i;
}

/* Right or wrong for every item of every task, one task after another: what the
 * accuracies and tests were made of. -1: the cell was not run. */
static Status add_items(const Study *s, SeriesSet *set)
{
    Series *out;
    int64_t n = 0, at = 0;
    for (int64_t k = 0; k < s->n_tasks; k++)
        n += s->tasks[k].n;
    TRY(series_add(set, &out, SERIES_I32, "eval/correct", "",
                   "1 where an item was answered right, -1: not run; task after task.", 3,
                   (const char *const[]){"weights", "logit_bits", "item"},
                   (int64_t[]){s->o.n_weights, s->o.n_bits, n}));
    int32_t *to = out->data;
    for (int64_t k = 0; k < s->n_tasks; at += s->tasks[k++].n)
        for (int64_t c = 0; c < n_cells(s); c++)
            for (int64_t i = 0; i < s->tasks[k].n; i++) {
                const StudyCell *cell = &s->cells[c];
                int64_t          item = task_item(&s->tasks[k], i);
                to[c * n + at + i] =
                    cell->done ? cell->correct[s->tasks[k].source][item] : -1;
            }
    return OK;
}

/* The orders are the last source. */
static Status add_orders(const Study *s, SeriesSet *set)
{
    Arena           a = {0};
    const uint8_t **correct = arena_alloc(&a, n_cells(s), sizeof *correct);
    if (!correct)
        FAIL(ERR_MEMORY, "out of memory for orders");
    for (int64_t c = 0; c < n_cells(s); c++)
        correct[c] = s->cells[c].done ? s->cells[c].correct[s->n_sources - 1] : NULL;
    Status status = shots_series(s->o.orders, correct, s->o.n_weights, s->o.n_bits, set);
    arena_close(&a);
    return status;
}

/* --- all --- */

Status study_series(const Study *s, SeriesSet *set)
{
    TRY(add_names(s, set));
    TRY(add_bits(s, set));
    if (s->o.text)
        TRY(add_figures(s, set, TEXT_FIGURES, sizeof TEXT_FIGURES / sizeof *TEXT_FIGURES));
    if (s->o.text && s->o.text->n_bytes)
        TRY(add_figures(s, set, BYTE_FIGURES, sizeof BYTE_FIGURES / sizeof *BYTE_FIGURES));
    if (s->o.divergence) {
        TRY(add_figures(s, set, DIVERGENCE_FIGURES,
                        sizeof DIVERGENCE_FIGURES / sizeof *DIVERGENCE_FIGURES));
        TRY(add_quantiles(s, set));
    }
    if (s->n_tasks) {
        TRY(add_tasks(s, set));
        TRY(add_items(s, set));
    }
    if (s->o.orders)
        TRY(add_orders(s, set));
    return study_paired(s, set);
}
