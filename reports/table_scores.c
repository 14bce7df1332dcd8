/* table_scores.c - what each cell of a study scored, and whether cells differ. */
#include <math.h>
#include <string.h>

#include "reports/tables.h"

#define TASK_DIMS "task,weights,logit_bits"
#define CELL_DIMS "weights,logit_bits"

enum { FIRST_SCORE = 3 };   // after model, weights, logit bits

static int task_number(const TaskNames *tasks, const char *name)
{
    for (int i = 0; i < tasks->n; i++)
        if (strcmp(tasks->name[i], name) == 0)
            return i;
    return -1;
}

void table_tasks(TaskNames *tasks, Arena *a, const SeriesSet *sets, int n_sets)
{
    *tasks = (TaskNames){0};
    for (int i = 0; i < n_sets; i++) {
        const Series *accuracy = series_find_dims(&sets[i], "eval/accuracy", TASK_DIMS);
        for (int64_t k = 0; accuracy && k < accuracy->shape[0]; k++) {
            const char *name = table_attr_part(a, &sets[i], "eval_tasks", ',', k);
            if (name && task_number(tasks, name) < 0 && tasks->n < TABLE_TASKS)
                tasks->name[tasks->n++] = name;
        }
    }
}

/* Number of kinds of weights that were scored; 0: nothing was. */
static int64_t n_weights(const SeriesSet *set)
{
    const Series *s = series_find_dims(set, "eval/accuracy", TASK_DIMS);
    if (s)
        return s->shape[1];
    s = series_find_dims(set, "eval/perplexity", CELL_DIMS);
    return s ? s->shape[0] : 0;
}

static int64_t n_bits(const SeriesSet *set)
{
    const Series *s = series_find_dims(set, "logit_bits", "logit_bits");
    return s ? s->shape[0] : 0;
}

/* --- a row for each cell --- */

typedef struct {
    Arena           *a;
    const TaskNames *tasks;
    const SeriesSet *set;
    int64_t          w, b;
    Cell            *row;
} Row;

static bool any_has(const SeriesSet *sets, int n_sets, const char *name, const char *dims)
{
    for (int i = 0; i < n_sets; i++)
        if (series_find_dims(&sets[i], name, dims))
            return true;
    return false;
}

/* Takes the next row of t for a cell: model, weights, bits. */
static Row next_row(Table *t, Arena *a, const TaskNames *tasks, const SeriesSet *set,
                    int64_t w, int64_t b)
{
    Row r = {a, tasks, set, w, b, t->cells + t->n_rows++ * t->n_columns};
    r.row[0] = table_text_cell(set->model);
    r.row[1] = table_text_cell(table_attr_part(a, set, "eval_weights", ',', w));
    r.row[2] = table_int_cell((int64_t)series_get(series_find(set, "logit_bits"), b, 0, 0));
    return r;
}

static Status new_scores(Table *t, Arena *a, const SeriesSet *sets, int n_sets,
                         const TaskNames *tasks, int more)
{
    int64_t n_rows = 0;
    for (int i = 0; i < n_sets; i++)
        n_rows += n_weights(&sets[i]) * n_bits(&sets[i]);
    TRY(table_new(t, a, n_rows, FIRST_SCORE + tasks->n + more));
    table_name(t, 0, "model", "model");
    table_name(t, 1, "weights", "weights");
    table_name(t, 2, "logit bits", "logit_bits");
    for (int i = 0; i < tasks->n; i++)
        table_name(t, FIRST_SCORE + i, tasks->name[i], tasks->name[i]);
    return OK;
}

/* Column of the set's task k; -1: it has none. */
static int column_of(const Row *r, int64_t k)
{
    const char *name = table_attr_part(r->a, r->set, "eval_tasks", ',', k);
    int         task = name ? task_number(r->tasks, name) : -1;
    return task < 0 ? -1 : FIRST_SCORE + task;
}

/* --- scores --- */

static Cell share_cell(double value, double error)
{
    return isnan(value) ? (Cell){0}
                        : (Cell){.kind = CELL_PERCENT, .value = value, .error = error};
}

static void accuracy_cells(const Row *r)
{
    const Series *accuracy = series_find_dims(r->set, "eval/accuracy", TASK_DIMS);
    const Series *error = series_find_dims(r->set, "eval/stderr", TASK_DIMS);
    for (int64_t k = 0; accuracy && k < accuracy->shape[0]; k++) {
        int column = column_of(r, k);
        if (column >= 0)
            r->row[column] = share_cell(series_get(accuracy, k, r->w, r->b),
                                        series_get(error, k, r->w, r->b));
    }
}

/* NaN of a perplexity was measured, and of a divergence where predictions were compared: a
 * model that breaks down says so. */
static void text_cells(const Row *r, int column, bool kl)
{
    const Series *perplexity = series_find_dims(r->set, "eval/perplexity", CELL_DIMS);
    const Series *divergence = series_find_dims(r->set, "eval/kl", CELL_DIMS);
    double top1 = series_get(series_find_dims(r->set, "eval/top1", CELL_DIMS), r->w, r->b, 0);
    if (perplexity && r->w < perplexity->shape[0] && r->b < perplexity->shape[1])
        r->row[column] = (Cell){.kind = CELL_VALUE,
                                .value = series_get(perplexity, r->w, r->b, 0)};
    if (!kl)
        return;
    r->row[column + 1] = table_value_cell(series_get(divergence, r->w, r->b, 0));
    if (!isnan(top1))
        r->row[column + 1].kind = CELL_VALUE;
    r->row[column + 2] = share_cell(
        top1, series_get(series_find_dims(r->set, "eval/top1_stderr", CELL_DIMS), r->w, r->b, 0));
}

/* Where an answer was scored by NaN, an accuracy is there and says nothing. */
static double count_nan(const SeriesSet *sets, int n_sets)
{
    double n = 0;
    for (int i = 0; i < n_sets; i++) {
        const Series *s = series_find_dims(&sets[i], "eval/nan", CELL_DIMS);
        for (int64_t k = 0; s && k < series_count(s); k++)
            n += series_at(s, k);
    }
    return n;
}

static Cell nan_cell(const Row *r)
{
    const Series *s = series_find_dims(r->set, "eval/nan", CELL_DIMS);
    double        n = series_get(s, r->w, r->b, 0);
    return isnan(n) ? (Cell){0} : table_int_cell((int64_t)n);
}

/* Tasks of a set with items that were cut, a line each. */
static void add_truncated(TextBuf *b, Arena *a, const SeriesSet *set)
{
    const Series *cut = series_find_dims(set, "eval/truncated", "task");
    const Series *items = series_find_dims(set, "eval/items", "task");
    for (int64_t k = 0; cut && k < cut->shape[0]; k++) {
        const char *task = table_attr_part(a, set, "eval_tasks", ',', k);
        if (task && series_get(cut, k, 0, 0) > 0)
            textbuf_printf(b, "%s: %.0f of %.0f items of %s are longer than the context and lost "
                           "tokens on the left.\n", set->model, series_get(cut, k, 0, 0),
                           series_get(items, k, 0, 0), task);
    }
}

/* Is the first kind of any model a checkpoint of few bits, as it is? */
static bool any_stored(Arena *a, const SeriesSet *sets, int n_sets)
{
    for (int i = 0; i < n_sets; i++) {
        const char *first = table_attr_part(a, &sets[i], "eval_weights", ',', 0);
        if (first && strcmp(first, "stored") == 0)
            return true;
    }
    return false;
}

static Status add_note(Table *t, Arena *a, bool kl, bool stored)
{
    t->note = arena_printf(
        a, "Accuracy in per cent ± standard error; perplexity of the text beside it%s. 16 bits: "
        "not quantized.%s", kl ? "; KL: mean divergence from the unquantized model's "
                                 "predictions, in nats; top-1: how often its first choice stays"
                               : "",
        stored ? " stored: weights of few bits, as the checkpoint has them; what is called "
                 "unquantized of such a model is that." : "");
    return t->note ? OK : STATUS(ERR_MEMORY, "out of memory: a note");
}

static Status add_warning(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    TextBuf b;
    textbuf_init(&b, a);
    if (count_nan(sets, n_sets) > 0)
        textbuf_add(&b, "NaN: tokens of the answers whose log-probability was NaN: where there "
                    "are any, the accuracy says nothing.\n");
    for (int i = 0; i < n_sets; i++)
        add_truncated(&b, a, &sets[i]);
    t->warning = b.n ? b.at : NULL;
    return textbuf_status(&b);
}

Status table_accuracy(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    TaskNames tasks;
    bool      kl = any_has(sets, n_sets, "eval/kl", CELL_DIMS);
    bool      nan = count_nan(sets, n_sets) > 0;
    table_tasks(&tasks, a, sets, n_sets);
    TRY(new_scores(t, a, sets, n_sets, &tasks, (kl ? 3 : 1) + nan));
    int text = FIRST_SCORE + tasks.n;
    t->title = "Accuracy over the bits of the attention logits";
    TRY(add_note(t, a, kl, any_stored(a, sets, n_sets)));
    TRY(add_warning(t, a, sets, n_sets));
    table_name(t, text, "perplexity", "perplexity");
    if (kl) {
        table_name(t, text + 1, "KL", "kl");
        table_name(t, text + 2, "top-1", "top_1_agreement");
    }
    if (nan)
        table_name(t, t->n_columns - 1, "NaN", "nan");
    for (int i = 0; i < n_sets; i++)
        for (int64_t w = 0; w < n_weights(&sets[i]); w++)
            for (int64_t b = 0; b < n_bits(&sets[i]); b++) {
                Row r = next_row(t, a, &tasks, &sets[i], w, b);
                accuracy_cells(&r);
                text_cells(&r, text, kl);
                if (nan)
                    r.row[t->n_columns - 1] = nan_cell(&r);
            }
    return OK;
}

/* --- differences --- */

/* The three series of one comparison: "paired/accuracy", its error and p. */
typedef struct {
    const Series *difference, *error, *p;
} Triple;

static Triple find_triple(Arena *a, const SeriesSet *set, const char *name, const char *dims)
{
    const char *error = arena_printf(a, "%s_stderr", name), *p = arena_printf(a, "%s_p", name);
    Triple      t = {series_find_dims(set, name, dims), NULL, NULL};
    if (error && p) {
        t.error = series_find_dims(set, error, dims);
        t.p = series_find_dims(set, p, dims);
    }
    return t;
}

static Cell difference_cell(double value, double error, double p)
{
    return isnan(value) ? (Cell){0}
                        : (Cell){.kind = CELL_DIFFERENCE, .value = value, .error = error,
                                 .p = p};
}

/* Does the row say anything? */
static bool difference_cells(const Row *r, const char *accuracy, const char *nll, int text)
{
    Triple t = find_triple(r->a, r->set, accuracy, TASK_DIMS);
    Triple x = find_triple(r->a, r->set, nll, CELL_DIMS);
    bool   any = false;
    for (int64_t k = 0; t.difference && k < t.difference->shape[0]; k++) {
        int column = column_of(r, k);
        if (column < 0)
            continue;
        r->row[column] = difference_cell(series_get(t.difference, k, r->w, r->b),
                                         series_get(t.error, k, r->w, r->b),
                                         series_get(t.p, k, r->w, r->b));
        any |= r->row[column].kind != CELL_NONE;
    }
    /* exp(nll + d) is exp(nll) times exp(d): the change as a share. */
    double d = series_get(x.difference, r->w, r->b, 0);
    r->row[text] = difference_cell(expm1(d), exp(d) * series_get(x.error, r->w, r->b, 0),
                                   series_get(x.p, r->w, r->b, 0));
    return any || r->row[text].kind != CELL_NONE;
}

static Status table_differences(Table *t, Arena *a, const SeriesSet *sets, int n_sets,
                                const char *accuracy, const char *nll)
{
    TaskNames tasks;
    table_tasks(&tasks, a, sets, n_sets);
    TRY(new_scores(t, a, sets, n_sets, &tasks, 1));
    int text = FIRST_SCORE + tasks.n;
    table_name(t, text, "perplexity, %", "perplexity");
    for (int i = 0; i < n_sets; i++)
        for (int64_t w = 0; w < n_weights(&sets[i]); w++)
            for (int64_t b = 0; b < n_bits(&sets[i]); b++) {
                Row r = next_row(t, a, &tasks, &sets[i], w, b);
                if (!difference_cells(&r, accuracy, nll, text))
                    memset(t->cells + --t->n_rows * t->n_columns, 0,
                           (size_t)t->n_columns * sizeof *t->cells);
            }
    return OK;
}

Status table_paired(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    TRY(table_differences(t, a, sets, n_sets, "paired/accuracy", "paired/nll"));
    t->title = "Change from the unquantized model, item by item";
    t->note = "Points of accuracy gained or lost ± paired standard error, and the p of McNemar's "
              "exact test (perplexity: in per cent, of the windows' signs; orders: of the "
              "questions'). noise: p above 0.05, the difference is within noise. Each is tested "
              "by itself: of twenty that are none, one looks like one.";
    return OK;
}

Status table_versus(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    TRY(table_differences(t, a, sets, n_sets, "versus/accuracy", "versus/nll"));
    const char *first = n_sets > 0 ? sets[0].model : "";
    t->title = arena_printf(a, "Difference from %s at the same bits, item by item", first);
    t->note = "As above; the model of the row less the first.";
    return t->title ? OK : STATUS(ERR_MEMORY, "out of memory: table of differences");
}
