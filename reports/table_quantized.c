/* table_quantized.c - what a run of quantize did to each matrix. */
#include "reports/tables.h"

static const struct {
    const char *column, *key, *series;
} COLUMNS[] = {
    {"matrix", "matrix", NULL},
    {"format", "format", NULL},
    {"bits", "bits", "quant/bits"},
    {"weight error", "weight_error", "quant/weight_error"},
    {"output error", "output_error", "quant/output_error"},
};
enum { N_COLUMNS = sizeof COLUMNS / sizeof COLUMNS[0] };

static void fill_row(Table *t, Arena *a, const SeriesSet *set, int64_t i)
{
    Cell *row = t->cells + i * N_COLUMNS;
    row[0] = table_text_cell(table_attr_part(a, set, "quant_matrices", ',', i));
    row[1] = table_text_cell(table_attr_part(a, set, "quant_formats", ',', i));
    for (int c = 2; c < N_COLUMNS; c++)
        row[c] = table_value_cell(
            series_get(series_find_dims(set, COLUMNS[c].series, "matrix"), i, 0, 0));
}

Status table_quantized(Table *t, Arena *a, const SeriesSet *set)
{
    const Series *bits = series_find_dims(set, "quant/bits", "matrix");
    int64_t       n = bits ? bits->shape[0] : 0;
    TRY(table_new(t, a, n, N_COLUMNS));
    t->title = "Matrices";
    t->note = "Bits a weight, scales included. Errors are relative: of the weights, and of the "
              "outputs over the calibration text.";
    t->n_rows = n;
    t->group = 1;
    for (int c = 0; c < N_COLUMNS; c++)
        table_name(t, c, COLUMNS[c].column, COLUMNS[c].key);
    for (int64_t i = 0; i < n; i++)
        fill_row(t, a, set, i);
    return OK;
}
