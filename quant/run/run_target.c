/* run_target.c - the bits of each matrix by measured errors: every set of matrices
 * that share an input is coded with 4, 6 and 8 bits, by the method that will code
 * it for good; the knapsack then takes the widths of least total error.
 * Error of a matrix: squared and relative, of its outputs over the text, or of its
 * weights where there is none. Matrices that other tools fuse go together; one that a
 * rule names keeps the rule's bits. */
#include "quant/budget.h"

#include <math.h>
#include <string.h>

#include "quant/run/run.h"

static const int BITS[BUDGET_CHOICES] = {4, 6, 8};

static double relative2(const MatrixFigures *f)
{
    const RoundError *e = f->measured ? &f->output : &f->weight;
    return e->sum2 > 0 ? e->error2 / e->sum2 : 0;
}

/* A budget of bits counts what weights take, one of bytes all that is stored. */
static double bytes_of(const Run *r, const Scheme *s, const LayerMatrix *m)
{
    if (r->o->target_bits > 0)
        return scheme_bits(s, m->k) * (double)(m->n * m->k) / 8;
    ExportOptions e = run_export_options(r);
    return (double)export_matrix_bytes(&e, s, m->n, m->k);
}

/* Codes a copy of the matrix with BITS[c]. */
static Status try_bits(BudgetItem *item, Run *r, const LayerMatrix *m, int c,
                       const InputStats *in)
{
    ArenaMark     mark = arena_mark(&r->scratch);
    Scheme        s = *run_scheme(r, m->name);
    LayerMatrix   copy = *m;
    RtnCodes      codes;
    MatrixFigures f;
    s.bits = run_has_rule(r, m->name) ? s.bits : BITS[c];
    ARENA_NEW(copy.w, &r->scratch, m->n * m->k);
    memcpy(copy.w, m->w, (size_t)(m->n * m->k) * sizeof *m->w);
    TRY(run_codes(&codes, &r->scratch, &s, m->n, m->k));
    TRY(run_encode(&codes, &f, r, &copy, &s, in));
    item->error[c] += relative2(&f);
    item->bytes[c] += bytes_of(r, &s, m);
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status measure_set(BudgetItem *item, Run *r, const LayerWeights *w, Tap tap)
{
    ArenaMark  mark = arena_mark(&r->scratch);
    InputStats in;
    bool       gathered = r->calibrated && run_has_inputs(r, w, tap);
    *item = (BudgetItem){0};
    if (gathered)
        TRY(run_tap_inputs(&in, r, w, tap));
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        for (int c = 0; c < BUDGET_CHOICES && run_in_set(r, w, kind, tap); c++)
            TRY(try_bits(item, r, &w->at[kind], c, gathered ? &in : NULL));
    r->factor = (GptqFactor){0};
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status measure_layer(BudgetItem *items, Run *r, int64_t layer)
{
    ArenaMark    mark = arena_mark(&r->scratch);
    LayerWeights w;
    TRY(run_layer_open(&w, r, layer));
    if (r->calibrated)
        TRY(run_layer_transform(r, &w));
    for (int i = 0; i < RUN_SETS; i++)
        TRY(measure_set(&items[i], r, &w, RUN_SET[i]));
    if (r->calibrated)
        TRY(run_layer_advance(r, &w));
    arena_rewind(&r->scratch, mark);
    run_step(r, "layers measured");
    return OK;
}

typedef struct {
    double bytes;            // for the matrices that will be coded
    double weights, others;  // weights of those, bytes of all else
} Budget;

static Budget budget_of(const Run *r)
{
    const ModelInfo *info = &r->layers.info;
    ExportOptions    e = run_export_options(r);
    double           weights = 0, others = 0;
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        double             n = (double)tensor_count(&t->view);
        if (t->quantizable && run_scheme(r, t->name)->bits)
            weights += n;
        else
            others += n * (double)dtype_size(export_float_dtype(&e, t));
    }
    if (r->o->target_bits > 0)
        return (Budget){r->o->target_bits * weights / 8, weights, others};
    if (r->o->rotate && info->config.tied)
        others += (double)(info->config.vocab * info->config.hidden) *
                  (double)dtype_size(r->dtype);
    return (Budget){r->o->target_bytes - others, weights, others};
}

/* In the words of the option: bits of a weight, or bytes of all tensors. */
static Status check_least(const Run *r, const Budget *b, const BudgetItem *items, int64_t n)
{
    double least = 0;
    for (int64_t i = 0; i < n; i++)
        least += items[i].bytes[0];
    if (least <= b->bytes)
        return OK;
    if (r->o->target_bits > 0)
        FAIL(ERR_RANGE, "--target-bits %g: with the lowest widths a weight takes %.4f bits, "
             "scales included", r->o->target_bits, 8 * least / b->weights);
    FAIL(ERR_RANGE, "--target-size of %.0f bytes: with the lowest widths all tensors take "
         "%.0f", r->o->target_bytes, least + b->others);
}

static Status set_bits(Run *r, const int *choice)
{
    for (int64_t l = 0; l < r->layers.info.config.n_layers; l++) {
        LayerWeights w;
        layers_describe(&w, &r->layers, l);
        for (int i = 0; i < RUN_SETS; i++)
            for (int kind = 0; kind < N_WEIGHTS; kind++) {
                if (!run_in_set(r, &w, kind, RUN_SET[i]) || run_has_rule(r, w.at[kind].name))
                    continue;
                Scheme s = *run_scheme(r, w.at[kind].name);
                s.bits = BITS[choice[l * RUN_SETS + i]];
                TRY(plan_set(&r->plan, w.at[kind].name, s));
            }
    }
    return OK;
}

Status run_target(Run *r)
{
    int64_t     L = r->layers.info.config.n_layers, n = L * RUN_SETS;
    BudgetItem *items;
    int        *choice;
    ARENA_NEW(items, r->a, n);
    ARENA_NEW(choice, r->a, n);
    for (int64_t l = 0; l < L; l++)
        TRY(measure_layer(&items[l * RUN_SETS], r, l));
    Budget budget = budget_of(r);
    TRY(check_least(r, &budget, items, n));
    TRY(budget_solve(choice, &r->scratch, items, n, budget.bytes));
    return set_bits(r, choice);
}
