/* run_series.c - the result of a run as series. */
#include "quant/quantize.h"

#include "analysis/textbuf.h"

/* One number a matrix, by its place in QuantizeRow. */
static const struct {
    const char *name, *unit, *about;
    SeriesType  type;
    size_t      offset;
} COLUMNS[] = {
    {"quant/outputs", "", "Outputs of the matrix.", SERIES_I64, offsetof(QuantizeRow, n)},
    {"quant/inputs", "", "Inputs of the matrix.", SERIES_I64, offsetof(QuantizeRow, k)},
    {"quant/bits", "bit", "Bits a weight takes, scales and zero points included.", SERIES_F64,
     offsetof(QuantizeRow, bits)},
    {"quant/weight_error", "", "Norm of what coding changed, relative to the weights' norm.",
     SERIES_F64, offsetof(QuantizeRow, weight_error)},
    {"quant/output_error", "", "The same of the outputs over the calibration text; NaN: not "
     "measured.", SERIES_F64, offsetof(QuantizeRow, output_error)},
    {"quant/damp", "", "Damping that GPTQ needed, as a share of the mean diagonal.",
     SERIES_F64, offsetof(QuantizeRow, damp)},
    {"quant/dead_inputs", "", "Inputs that were zero all over the calibration text.",
     SERIES_I64, offsetof(QuantizeRow, n_dead)},
};
enum { N_COLUMNS = sizeof COLUMNS / sizeof COLUMNS[0] };

static Status add_column(const QuantizeResult *r, SeriesSet *set, int c)
{
    Series *out;
    TRY(series_add(set, &out, COLUMNS[c].type, COLUMNS[c].name, COLUMNS[c].unit,
                   COLUMNS[c].about, 1, (const char *const[]){"matrix"},
                   (int64_t[]){r->n_rows}));
    for (int64_t i = 0; i < r->n_rows; i++) {
        const char *field = (const char *)&r->rows[i] + COLUMNS[c].offset;
        if (COLUMNS[c].type == SERIES_I64)
            ((int64_t *)out->data)[i] = *(const int64_t *)(const void *)field;
        else
            ((double *)out->data)[i] = *(const double *)(const void *)field;
    }
    return OK;
}

static Status add_names(const QuantizeResult *r, SeriesSet *set)
{
    TextBuf names, formats;
    textbuf_init(&names, set->arena);
    textbuf_init(&formats, set->arena);
    for (int64_t i = 0; i < r->n_rows; i++) {
        textbuf_printf(&names, "%s%s", i ? "," : "", r->rows[i].name);
        textbuf_printf(&formats, "%s%s", i ? "," : "", r->rows[i].format);
    }
    TRY(textbuf_status(&names));
    TRY(textbuf_status(&formats));
    TRY(series_attr_text(set, "quant_matrices", names.at));
    return series_attr_text(set, "quant_formats", formats.at);
}

Status quantize_series(const QuantizeResult *r, SeriesSet *set)
{
    for (int c = 0; c < N_COLUMNS; c++)
        TRY(add_column(r, set, c));
    TRY(add_names(r, set));
    TRY(series_attr_real(set, "quant_bits", r->bits));
    TRY(series_attr_int(set, "quant_bytes_before", (int64_t)r->bytes_before));
    TRY(series_attr_int(set, "quant_bytes_after", (int64_t)r->bytes_after));
    return series_attr_text(set, "quant_notes", r->notes ? r->notes : "");
}
