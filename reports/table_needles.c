/* table_needles.c - retrieval of needles by depth, attention to them, and the order of
 * examples. */
#include <math.h>
#include <string.h>

#include "analysis/retrieval.h"
#include "reports/tables.h"

enum { MOST_DEPTHS = 16 };

/* "needles/n6_r2/accuracy": N and R are in the name. NULL: not measured. */
static const Series *needle_series(const SeriesSet *set, const char *what, const char *dims)
{
    for (int64_t i = 0; i < set->n; i++) {
        const char *name = set->at[i].name, *last = strrchr(name, '/');
        if (strncmp(name, "needles/", 8) == 0 && strcmp(last + 1, what) == 0)
            return series_find_dims(set, name, dims);
    }
    return NULL;
}

static int n_depths(const SeriesSet *sets, int n_sets, const char *name, const char *dims,
                    int dim)
{
    int n = 0;
    for (int i = 0; i < n_sets; i++) {
        const Series *s = needle_series(&sets[i], name, dims);
        if (s && s->shape[dim] > n)
            n = (int)(s->shape[dim] < MOST_DEPTHS ? s->shape[dim] : MOST_DEPTHS);
    }
    return n;
}

/* "depth 25 %": depths are evenly spaced. */
static Status name_depths(Table *t, Arena *a, int first, int n)
{
    for (int i = 0; i < n; i++) {
        int         depth = n > 1 ? 100 * i / (n - 1) : 0;
        const char *column = arena_printf(a, "depth %d %%", depth);
        const char *key = arena_printf(a, "depth_%d", depth);
        if (!column || !key)
            FAIL(ERR_MEMORY, "out of memory: table of needles");
        table_name(t, first + i, column, key);
    }
    return OK;
}

static Cell share(double value, double error)
{
    return isnan(value) ? (Cell){0}
                        : (Cell){.kind = CELL_PERCENT, .value = value, .error = error};
}

/* Of the episodes at all depths, by the formula of the accuracy table. */
static Cell all_found(const SeriesSet *set)
{
    const Series *correct = needle_series(set, "correct", "depth,sample");
    int64_t       right = 0, n = correct ? series_count(correct) : 0;
    for (int64_t i = 0; i < n; i++)
        right += series_at(correct, i) > 0;
    TaskScore score = task_score(n, right);
    return share(score.accuracy, score.error);   // NaN of none: a dash
}

Status table_needles(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    int n = n_depths(sets, n_sets, "accuracy", "depth", 0);
    TRY(table_new(t, a, n_sets, 2 + n));
    t->title = "Needles found, by depth of the answer";
    t->note = "Per cent ± standard error: exact match of all the numbers asked for. The answer's "
              "first needle stands at that depth of the context, the others anywhere.";
    t->group = 0;
    table_name(t, 0, "model", "model");
    TRY(name_depths(t, a, 1, n));
    table_name(t, 1 + n, "all", "all");
    for (int i = 0; i < n_sets && n; i++) {
        const Series *s = needle_series(&sets[i], "accuracy", "depth");
        const Series *e = needle_series(&sets[i], "stderr", "depth");
        if (!s)
            continue;
        Cell *row = t->cells + t->n_rows++ * t->n_columns;
        row[0] = table_text_cell(sets[i].model);
        for (int k = 0; k < n; k++)
            row[1 + k] = share(series_get(s, k, 0, 0), series_get(e, k, 0, 0));
        row[1 + n] = all_found(&sets[i]);
    }
    return OK;
}

static double layers_mean(const Series *s, int64_t depth)
{
    double sum = 0;
    for (int64_t l = 0; s && l < s->shape[0]; l++)
        sum += series_get(s, l, depth, 0);
    return s ? sum / (double)s->shape[0] : NAN;
}

Status table_needle_shares(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    static const char *const PARTS[][2] = {{"answer", "span"}, {"rest", "rest"}};
    int n = n_depths(sets, n_sets, "span", "layer,depth", 1);
    TRY(table_new(t, a, 2 * (int64_t)n_sets, 2 + n));
    t->title = "Attention to the answer's needle and to the rest";
    t->note = "Per cent of the attention of the rows that predict the answer, mean over layers "
              "and heads; of a differential head, of the difference of its maps by absolute "
              "value.";
    t->group = 1;
    table_name(t, 0, "model", "model");
    table_name(t, 1, "attention to", "part");
    TRY(name_depths(t, a, 2, n));
    for (int part = 0; part < 2 && n; part++)
        for (int i = 0; i < n_sets; i++) {
            const Series *s = needle_series(&sets[i], PARTS[part][1], "layer,depth");
            if (!s)
                continue;
            Cell *row = t->cells + t->n_rows++ * t->n_columns;
            row[0] = table_text_cell(sets[i].model);
            row[1] = table_text_cell(PARTS[part][0]);
            for (int k = 0; k < n; k++)
                row[2 + k] = share(layers_mean(s, k), NAN);
        }
    return OK;
}

Status table_needle_layers(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    int     n = n_depths(sets, n_sets, "span", "layer,depth", 1);
    int64_t rows = 0;
    for (int i = 0; i < n_sets; i++) {
        const Series *s = needle_series(&sets[i], "span", "layer,depth");
        rows += s ? s->shape[0] : 0;
    }
    TRY(table_new(t, a, rows, 2 + n));
    t->title = "Attention to the answer's needle, layer by layer";
    table_name(t, 0, "model", "model");
    table_name(t, 1, "layer", "layer");
    TRY(name_depths(t, a, 2, n));
    for (int i = 0; i < n_sets && n; i++) {
        const Series *s = needle_series(&sets[i], "span", "layer,depth");
        for (int64_t l = 0; s && l < s->shape[0]; l++) {
            Cell *row = t->cells + t->n_rows++ * t->n_columns;
            row[0] = table_text_cell(sets[i].model);
            row[1] = table_int_cell(l);
            for (int k = 0; k < n; k++)
                row[2 + k] = share(series_get(s, l, k, 0), NAN);
        }
    }
    return OK;
}

/* --- orders --- */

static int64_t cells_of(const SeriesSet *set)
{
    const Series *s = series_find_dims(set, "order/mean", "weights,logit_bits");
    return s ? series_count(s) : 0;
}

static void order_rows(Table *t, Arena *a, const SeriesSet *set)
{
    static const char *const NAMES[] = {"order/mean", "order/lowest", "order/highest",
                                        "order/stddev"};
    const Series *mean = series_find_dims(set, NAMES[0], "weights,logit_bits");
    const Series *order = series_find_dims(set, "order/accuracy",
                                           "weights,logit_bits,permutation");
    const Series *question = series_find_dims(set, "order/queries", "question");
    for (int64_t c = 0; c < cells_of(set); c++) {
        Cell   *row = t->cells + t->n_rows++ * t->n_columns;
        int64_t w = c / mean->shape[1], b = c % mean->shape[1];
        row[0] = table_text_cell(set->model);
        row[1] = table_text_cell(table_attr_part(a, set, "eval_weights", ',', w));
        row[2] = table_int_cell((int64_t)series_get(series_find(set, "logit_bits"), b, 0, 0));
        row[3] = table_int_cell(order ? order->shape[2] : 0);
        row[4] = table_int_cell(question ? question->shape[0] : 0);
        for (int k = 0; k < 4; k++)
            row[5 + k] = share(
                series_get(series_find_dims(set, NAMES[k], "weights,logit_bits"), w, b, 0), NAN);
    }
}

Status table_orders(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    static const char *const COLUMNS[][2] = {
        {"model", "model"},   {"weights", "weights"},   {"logit bits", "logit_bits"},
        {"orders", "orders"}, {"questions", "queries"}, {"mean", "mean"},
        {"lowest", "lowest"}, {"highest", "highest"},   {"stddev", "stddev"}};
    enum { N = sizeof COLUMNS / sizeof *COLUMNS };
    int64_t rows = 0;
    for (int i = 0; i < n_sets; i++)
        rows += cells_of(&sets[i]);
    TRY(table_new(t, a, rows, N));
    t->title = "Accuracy over orders of the examples";
    t->note = "Per cent; the same examples in other orders before the same questions. How far "
              "accuracy moves with the order: lowest, highest and standard deviation.";
    for (int k = 0; k < N; k++)
        table_name(t, k, COLUMNS[k][0], COLUMNS[k][1]);
    for (int i = 0; i < n_sets; i++)
        order_rows(t, a, &sets[i]);
    return OK;
}
