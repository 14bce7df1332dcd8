/* tables.c - which figure of which series stands in which cell. */
#include "reports/tables.h"

#include <math.h>
#include <string.h>

#include "analysis/textbuf.h"

enum { MAX_MODELS = 16 };

const char *table_attr_part(Arena *a, const SeriesSet *set, const char *key, char separator,
                            int64_t i)
{
    const Attr *attr = series_attr(set, key);
    if (!attr || attr->kind != ATTR_TEXT || i < 0)
        return NULL;
    const char *p = attr->text;
    for (; i > 0; i--) {
        p = strchr(p, separator);
        if (!p)
            return NULL;
        p++;
    }
    const char *end = strchr(p, separator);
    return arena_text(a, p, end ? (size_t)(end - p) : strlen(p));
}

/* --- outliers --- */

static const struct {
    const char *label, *top, *median, *wrong[3];
} ACTIVATIONS[] = {
    {"attention logits", "logits/top/value", "logits/median",
     {"logits/nan", "logits/pos_inf", "logits/neg_inf"}},
    {"hidden states", "hidden/top/value", "hidden/median",
     {"hidden/nan", "hidden/pos_inf", "hidden/neg_inf"}},
};
static const int RANKS[] = {1, 2, 3, 10, 100};
enum { N_ACTIVATIONS = 2, N_RANKS = 5, WRONG_COLUMN = 3 + N_RANKS };

static double not_finite(const SeriesSet *set, int activation)
{
    double n = 0;
    for (int i = 0; i < 3; i++) {
        const Series *s = series_find(set, ACTIVATIONS[activation].wrong[i]);
        for (int64_t k = 0; s && k < series_count(s); k++)
            n += series_at(s, k);
    }
    return n;
}

double table_not_finite(const SeriesSet *set)
{
    double n = 0;
    for (int activation = 0; activation < N_ACTIVATIONS; activation++)
        n += not_finite(set, activation);
    return n;
}

static void outlier_row(Table *t, const SeriesSet *set, int activation)
{
    const Series *top = series_find_dims(set, ACTIVATIONS[activation].top, "rank");
    if (!top)
        return;
    Cell *row = t->cells + t->n_rows++ * t->n_columns;
    row[0] = table_text_cell(set->model);
    row[1] = table_text_cell(ACTIVATIONS[activation].label);
    for (int i = 0; i < N_RANKS; i++)
        row[2 + i] = table_value_cell(fabs(series_get(top, RANKS[i] - 1, 0, 0)));
    row[2 + N_RANKS] = table_value_cell(
        series_get(series_find_dims(set, ACTIVATIONS[activation].median, ""), 0, 0, 0));
    if (t->n_columns > WRONG_COLUMN)
        row[WRONG_COLUMN] = table_int_cell((int64_t)not_finite(set, activation));
}

const char *table_silent_layers(const SeriesSet *set)
{
    const Attr *layers = series_attr(set, "layers_without_logits");
    return layers && layers->kind == ATTR_TEXT ? layers->text : NULL;
}

/* What the figures are of, and which layers they are not of. */
static Status outlier_note(const char **out, Arena *a, const SeriesSet *sets, int n_sets)
{
    TextBuf b;
    textbuf_init(&b, a);
    textbuf_add(&b, "Magnitudes. Attention logits: q·k/√d after RoPE, before mask and softmax, "
                "allowed positions only. Hidden states: the output of every decoder layer.");
    for (int i = 0; i < n_sets; i++) {
        const char *silent = table_silent_layers(&sets[i]);
        if (silent)
            textbuf_printf(&b, " %s has no attention, and so no logits, in layers %s.",
                           sets[i].model, silent);
    }
    *out = b.at;
    return textbuf_status(&b);
}

Status table_outliers(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    static const char *const names[][2] = {
        {"model", "model"}, {"activation", "activation"}, {"top-1", "top_1"},
        {"top-2", "top_2"}, {"top-3", "top_3"}, {"top-10", "top_10"},
        {"top-100", "top_100"}, {"median", "median"}, {"NaN or inf", "not_finite"}};
    bool wrong = false;
    for (int i = 0; i < n_sets; i++)
        wrong |= table_not_finite(&sets[i]) > 0;
    TRY(table_new(t, a, (int64_t)n_sets * N_ACTIVATIONS, WRONG_COLUMN + wrong));
    for (int i = 0; i < t->n_columns; i++)
        table_name(t, i, names[i][0], names[i][1]);
    t->title = "Activation outliers";
    t->group = 1;
    TRY(outlier_note(&t->note, a, sets, n_sets));
    for (int activation = 0; activation < N_ACTIVATIONS; activation++)
        for (int i = 0; i < n_sets; i++)
            outlier_row(t, &sets[i], activation);
    return OK;
}

/* --- layers --- */

static const struct {
    const char *label, *key, *series, *dims;
} LAYER_FIGURES[] = {
    {"logit", "logit_absmax", "logits/absmax", "layer,head,map"},
    {"hidden state", "hidden_absmax", "hidden/absmax", "layer"},
    {"λ", "lambda", "attention/lambda", "layer"},
};
enum { N_LAYER_FIGURES = 3 };

/* Largest of a layer; NaN where there is none. NaN among them is passed over:
 * it is counted elsewhere. */
static double layer_largest(const Series *s, int64_t layer)
{
    if (!s || layer >= s->shape[0])
        return NAN;
    int64_t n = series_count(s) / s->shape[0];
    double largest = NAN;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, series_at(s, layer * n + i));
    return largest;
}

Status table_layers(Table *t, Arena *a, const SeriesSet *sets, int n_sets)
{
    const Series *of[MAX_MODELS * N_LAYER_FIGURES];
    int n = 0;
    int64_t layers = 0;
    TRY(table_new(t, a, 0, 1 + n_sets * N_LAYER_FIGURES));
    table_name(t, 0, "layer", "layer");
    for (int i = 0; i < n_sets && i < MAX_MODELS; i++)
        for (int k = 0; k < N_LAYER_FIGURES; k++) {
            const Series *s =
                series_find_dims(&sets[i], LAYER_FIGURES[k].series, LAYER_FIGURES[k].dims);
            if (!s || series_count(s) == 0)
                continue;
            const char *column =
                arena_printf(a, "%s: %s", sets[i].model, LAYER_FIGURES[k].label);
            const char *key = arena_printf(a, "%s/%s", sets[i].model, LAYER_FIGURES[k].key);
            if (!column || !key)
                FAIL(ERR_MEMORY, "out of memory: table of layers");
            of[n++] = s;
            table_name(t, n, column, key);
            layers = s->shape[0] > layers ? s->shape[0] : layers;
        }
    t->title = "Largest magnitude of every layer";
    t->n_columns = 1 + n;
    t->n_rows = layers;
    ARENA_NEW(t->cells, a, t->n_rows * t->n_columns);
    for (int64_t layer = 0; layer < layers; layer++) {
        Cell *row = t->cells + layer * t->n_columns;
        row[0] = table_int_cell(layer);
        for (int k = 0; k < n; k++)
            row[1 + k] = table_value_cell(layer_largest(of[k], layer));
    }
    return OK;
}
