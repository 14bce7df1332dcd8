/* run_layer.c - one layer: read, transformed, coded input by input, exported. */
#include <math.h>
#include <string.h>

#include "quant/methods/awq.h"
#include "quant/methods/smooth.h"
#include "quant/run/run.h"

/* --- transforms --- */

Status run_layer_open(LayerWeights *w, Run *r, int64_t layer)
{
    const QuantizeOptions *o = r->o;
    TRY(layers_read(w, &r->scratch, &r->layers, layer));
    if (!o->rotate)
        return OK;
    const ModelConfig *c = &r->layers.info.config;
    Rotation           r2;
    TRY(rotation_init(&r2, &r->scratch, c->head_dim * c->n_maps, rotate_seed(o->seed, layer)));
    return rotate_layer(w, &r->values, &r->r1, r->values.paired ? &r2 : NULL, &r->scratch);
}

/* Gathers the inputs at a tap with the weights as they are now. */
Status run_layer_inputs(InputStats *in, Run *r, const LayerWeights *w, Tap tap, bool gram)
{
    Backend  *be = r->o->backend;
    ArenaMark mark = backend_mark(be);
    TRY(layers_place(&r->model, &r->layers, w));
    Status s = calibration_inputs(in, &r->scratch, &r->calibration, w->number, tap, gram);
    backend_rewind(be, mark);
    return s;
}

/* Between a norm and what reads it. */
static Status scale_norm(Run *r, LayerWeights *w, int norm, const Scheme *schemes)
{
    const QuantizeOptions *o = r->o;
    ArenaMark              mark = arena_mark(&r->scratch);
    InputStats             in;
    double                 ratio;
    TRY(run_layer_inputs(&in, r, w, norm == 0 ? TAP_QKV_IN : TAP_MLP_IN, o->awq));
    if (o->smooth > 0)
        TRY(smooth_norm(w, norm, &in, o->smooth, &r->scratch));
    if (o->awq)
        TRY(awq_norm(w, norm, &in, schemes, &r->scratch, o->backend, &ratio));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* Values to outputs only where each head has values of its own and no norm after them. */
static Status scale_values(Run *r, LayerWeights *w, const Scheme *schemes)
{
    const ModelConfig *c = &r->layers.info.config;
    ArenaMark          mark = arena_mark(&r->scratch);
    InputStats         in;
    double             ratio;
    if (c->head_norm_eps >= 0 || c->n_heads != c->n_groups)
        return OK;
    TRY(run_layer_inputs(&in, r, w, TAP_O_IN, true));
    TRY(awq_value_out(w, &r->values, c->head_norm_eps, &in, schemes, &r->scratch,
                      r->o->backend, &ratio));
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status scale_down(Run *r, LayerWeights *w, const Scheme *schemes)
{
    ArenaMark  mark = arena_mark(&r->scratch);
    InputStats in;
    double     ratio;
    TRY(run_layer_inputs(&in, r, w, TAP_DOWN_IN, true));
    TRY(awq_up_down(w, &in, schemes, &r->scratch, r->o->backend, &ratio));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* Scales of AWQ and SmoothQuant, with the inputs that floats before them give. */
Status run_layer_transform(Run *r, LayerWeights *w)
{
    const QuantizeOptions *o = r->o;
    Scheme                 schemes[N_WEIGHTS];
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        schemes[kind] = *run_scheme(r, w->at[kind].name);
    if (!o->awq && !(o->smooth > 0))
        return OK;
    TRY(scale_norm(r, w, 0, schemes));
    if (o->awq)
        TRY(scale_values(r, w, schemes));
    TRY(scale_norm(r, w, 1, schemes));
    return o->awq ? scale_down(r, w, schemes) : OK;
}

/* --- codes --- */

Status run_codes(RtnCodes *out, Arena *a, const Scheme *s, int64_t n, int64_t k)
{
    int64_t groups = n * rtn_groups(s, k);
    out->codes = arena_raw(a, n * k, 1);  // all of them will be written
    if (!out->codes)
        FAIL(ERR_MEMORY, "out of memory: codes of a matrix [%lld,%lld]", (long long)n,
             (long long)k);
    ARENA_NEW(out->scales, a, groups);
    ARENA_NEW(out->zeros, a, groups);
    return OK;
}

/* The same lanes and chunks whatever the number of threads. */
static RoundError chunk_error(const float *w, const float *v, int64_t n)
{
    enum { LANES = 8 };
    double  error2[LANES] = {0}, sum2[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double a = (double)w[i + j], d = a - (double)v[i + j];
            error2[j] += d * d;
            sum2[j] += a * a;
        }
    for (int j = 0; i < n; i++, j++) {
        double a = (double)w[i], d = a - (double)v[i];
        error2[j] += d * d;
        sum2[j] += a * a;
    }
    RoundError e = {0};
    for (int j = 0; j < LANES; j++) {
        e.error2 += error2[j];
        e.sum2 += sum2[j];
    }
    return e;
}

static RoundError weight_error(const float *w, const float *v, int64_t n)
{
    enum { CHUNKS = 64 };
    RoundError part[CHUNKS], all = {0};
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < CHUNKS; c++) {
        int64_t first = n / CHUNKS * c, end = c == CHUNKS - 1 ? n : n / CHUNKS * (c + 1);
        part[c] = chunk_error(w + first, v + first, end - first);
    }
    for (int c = 0; c < CHUNKS; c++) {
        all.error2 += part[c].error2;
        all.sum2 += part[c].sum2;
    }
    return all;
}

static double damp_of(const Run *r)
{
    return r->o->damp > 0 ? r->o->damp : 0.01;
}

Status run_tap_inputs(InputStats *in, Run *r, const LayerWeights *w, Tap tap)
{
    const LayerMatrix *first = NULL;
    for (int kind = N_WEIGHTS - 1; kind >= 0; kind--)
        if (tap_of_weight((WeightKind)kind) == tap &&
            run_scheme(r, w->at[kind].name)->bits &&
            run_scheme(r, w->at[kind].name)->method == METHOD_GPTQ)
            first = &w->at[kind];
    TRY(run_layer_inputs(in, r, w, tap, true));
    if (!first)
        return OK;
    return gptq_factor(&r->factor, &r->scratch, first->name, in, damp_of(r),
                       r->o->backend->n_threads);
}

Status run_encode(const RtnCodes *out, MatrixFigures *f, Run *r, const LayerMatrix *m,
                  const Scheme *s, const InputStats *in)
{
    ArenaMark mark = arena_mark(&r->scratch);
    size_t    bytes = (size_t)(m->n * m->k) * sizeof(float);
    Matrix    job = {.name = m->name, .n = m->n, .k = m->k, .w = m->w, .scheme = *s,
                     .inputs = in, .damp = damp_of(r), .backend = r->o->backend,
                     .factor = r->factor.u ? &r->factor : NULL};
    float    *before = arena_raw(&r->scratch, m->n * m->k, sizeof *before);
    if (!before)
        FAIL(ERR_MEMORY, "out of memory: a copy of %s", m->name);
    memcpy(before, m->w, bytes);
    TRY(method_encode(out, &job, &r->scratch));
    *f = (MatrixFigures){.damp = job.damp_used, .n_dead = job.n_dead};
    f->weight = weight_error(before, m->w, m->n * m->k);
    if (in && in->gram) {
        f->measured = true;
        TRY(input_error(&f->output.error2, &r->scratch, r->o->backend, in, before, m->w, m->n));
        TRY(input_error(&f->output.sum2, &r->scratch, r->o->backend, in, before, NULL, m->n));
    }
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* --- export --- */

/* A float tensor of the layer that a transform may have changed. */
static Status export_plain(Run *r, const char *name, const float *x, int64_t n)
{
    if (!name)
        return OK;
    return export_floats(r->export, name, x, 0, n);
}

static Status code_matrix(Run *r, const LayerMatrix *m, MatrixFigures *f, const InputStats *in)
{
    const Scheme *s = run_scheme(r, m->name);
    ArenaMark     mark = arena_mark(&r->scratch);
    RtnCodes      codes;
    TRY(export_plain(r, m->bias_name, m->bias, m->n));
    if (!s->bits)
        return export_plain(r, m->name, m->w, m->n);
    TRY(run_codes(&codes, &r->scratch, s, m->n, m->k));
    TRY(run_encode(&codes, f, r, m, s, in));
    TRY(export_codes(r->export, m->name, &codes));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* All matrices that a tap feeds; the next tap sees what became of them. */
static Status code_tap(Run *r, LayerWeights *w, Tap tap)
{
    ArenaMark  mark = arena_mark(&r->scratch);
    InputStats in;
    bool       any = false;
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        any |= tap_of_weight((WeightKind)kind) == tap && run_scheme(r, w->at[kind].name)->bits;
    if (any && r->calibrated)
        TRY(run_tap_inputs(&in, r, w, tap));
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        if (tap_of_weight((WeightKind)kind) == tap)
            TRY(code_matrix(r, &w->at[kind], &r->figures[w->number * N_WEIGHTS + kind],
                            any && r->calibrated ? &in : NULL));
    r->factor = (GptqFactor){0};
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status move_on(Run *r, const LayerWeights *w, Status (*step)(Calibration *, int64_t))
{
    Backend  *be = r->o->backend;
    ArenaMark mark = backend_mark(be);
    TRY(layers_place(&r->model, &r->layers, w));
    Status s = step(&r->calibration, w->number);
    backend_rewind(be, mark);
    return s;
}

Status run_tap_done(Run *r, const LayerWeights *w, Tap tap)
{
    return r->calibrated && tap == TAP_O_IN ? move_on(r, w, calibration_attend) : OK;
}

Status run_layer_advance(Run *r, const LayerWeights *w)
{
    return move_on(r, w, calibration_advance);
}

static Status export_layer(Run *r, const LayerWeights *w)
{
    int64_t C = r->layers.info.config.hidden;
    for (int i = 0; i < 2; i++)
        TRY(export_plain(r, w->norm_name[i], w->norm[i], C));
    int64_t rows = r->calibrated ? r->o->text->start[r->o->text->n] : 0;
    size_t  bytes = (size_t)r->layers.info.config.n_layers * N_WEIGHTS * sizeof *r->figures;
    return export_layer_done(r->export, w->number, r->figures, bytes,
                             r->calibrated ? r->calibration.hidden : NULL, (size_t)(rows * C));
}

Status run_layer(Run *r, int64_t layer)
{
    ArenaMark    mark = arena_mark(&r->scratch);
    LayerWeights w;
    TRY(run_layer_open(&w, r, layer));
    if (r->calibrated)
        TRY(run_layer_transform(r, &w));
    for (int tap = TAP_QKV_IN; tap < N_TAPS; tap++) {
        TRY(code_tap(r, &w, (Tap)tap));
        TRY(run_tap_done(r, &w, (Tap)tap));
    }
    if (r->calibrated)
        TRY(run_layer_advance(r, &w));
    TRY(export_layer(r, &w));
    arena_rewind(&r->scratch, mark);
    run_step(r, "layers");
    return OK;
}
