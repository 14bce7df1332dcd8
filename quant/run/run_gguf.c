/* run_gguf.c - the run where OUT is a GGUF file: importance of the inputs from the
 * text, then one pass of the writer, which chooses scales itself. */
#include <math.h>
#include <strings.h>

#include "quant/formats/gguf.h"
#include "quant/run/run.h"

static Status check_options(const QuantizeOptions *o)
{
    if (o->rotate || o->awq || o->smooth > 0 || o->n_rules || o->target_bits > 0 ||
        o->target_bytes > 0 || o->resume)
        FAIL(ERR_USAGE, "gguf chooses types and scales itself: --rotate, --awq, --smooth, "
             "--scheme, --target-bits, --target-size and --resume do not go with it; write "
             "floats with --bits 16 and those first, then gguf from them");
    return OK;
}

static const char *type_name(const QuantizeOptions *o)
{
    if (o->gguf_type)
        return o->gguf_type;
    return o->scheme.bits == 4 ? "Q4_K_M" : o->scheme.bits == 6 ? "Q6_K" :
           o->scheme.bits == 8 ? "Q8_0" : "F16";
}

/* Mean of x^2 for each input of the layer's matrices. */
static Status layer_importance(const double **at, Run *r, int64_t layer)
{
    ArenaMark    mark = arena_mark(&r->scratch);
    LayerWeights w;
    TRY(run_layer_open(&w, r, layer));
    for (int tap = TAP_QKV_IN; tap < N_TAPS; tap++) {
        InputStats in;
        double    *mean;
        TRY(run_layer_reach(&in, r, &w, (Tap)tap, false));
        ARENA_NEW(mean, r->a, in.k);
        for (int64_t i = 0; i < in.k; i++)
            mean[i] = in.sum2[i] / (double)in.n_rows;
        at[tap] = mean;
    }
    TRY(run_layer_advance(r, &w));
    arena_rewind(&r->scratch, mark);
    run_step(r, "layers measured");
    return OK;
}

static Status add_rows(QuantizeResult *out, Run *r, const GgufOptions *g)
{
    double bits = 0, weights = 0;
    ARENA_NEW(out->rows, r->a, g->n_rows);
    for (int64_t i = 0; i < g->n_rows; i++) {
        const GgufRow *row = &g->rows[i];
        out->rows[i] = (QuantizeRow){.name = row->name, .format = row->type, .n = row->n,
                                     .k = row->k, .bits = row->bits,
                                     .weight_error = row->weight_error, .output_error = NAN};
        bits += row->bits * (double)(row->n * row->k);
        weights += (double)(row->n * row->k);
    }
    out->n_rows = g->n_rows;
    out->n_weights = (int64_t)weights;
    out->bits = weights > 0 ? bits / weights : 0;
    out->bytes_after = g->bytes;
    return OK;
}

static Status gguf_options(GgufOptions *g, Run *r)
{
    *g = (GgufOptions){.path = r->o->out, .source = &r->layers,
                       .overwrite = r->o->overwrite, .progress = r->o->progress};
    TRY(check_options(r->o));
    return gguf_type_parse(&g->type, type_name(r->o));
}

Status run_gguf_check(Run *r)
{
    GgufOptions g;
    TRY(gguf_options(&g, r));
    return gguf_check(r->a, &g);
}

Status run_gguf(Run *r, QuantizeResult *out)
{
    const ModelInfo *info = &r->layers.info;
    GgufOptions      g;
    TRY(gguf_options(&g, r));
    ARENA_NEW(g.rows, r->a, info->n_tensors);
    if (r->calibrated) {
        ARENA_NEW(g.importance, r->a, info->config.n_layers * N_TAPS);
        for (int64_t l = 0; l < info->config.n_layers; l++)
            TRY(layer_importance(&g.importance[l * N_TAPS], r, l));
    }
    TRY(gguf_write(r->a, &g));
    if (g.warning)
        textbuf_printf(&r->notes, "%s\n", g.warning);
    return add_rows(out, r, &g);
}
