/* run_layer.c - one layer: read, transformed, coded input by input, exported. */
#include <math.h>
#include <string.h>

#include "kernels/clock.h"
#include "kernels/size.h"
#include "quant/methods/rounding.h"
#include "quant/run/run.h"

const Tap RUN_SET[RUN_SETS] = {TAP_QKV_IN, TAP_HIDDEN, TAP_O_IN, TAP_MLP_IN, TAP_DOWN_IN};

Status run_layer_open(LayerWeights *w, Run *r, int64_t layer)
{
    TRY(layers_read(w, &r->scratch, &r->layers, layer));
    return run_layer_rotate(r, w);
}

Status run_layer_inputs(InputStats *in, Run *r, const LayerWeights *w, Tap tap, bool gram)
{
    Backend  *be = r->o->backend;
    ArenaMark mark = backend_mark(be);
    TRY(layers_place(&r->model, &r->layers, w));
    Status s = calibration_inputs(in, &r->scratch, &r->calibration, w->number, tap, gram);
    backend_rewind(be, mark);
    return s;
}

/* The layer from where it was left on: matrices before that, and at `to` and after it, are not
 * looked at. */
static Status place_part(Run *r, const LayerWeights *w, Tap to)
{
    LayerWeights part = *w;
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        Tap tap = tap_of_weight((WeightKind)kind);
        if (tap != TAP_HIDDEN && (tap < r->calibration.reached || (to && tap >= to)))
            part.at[kind].w = NULL;
    }
    return layers_place(&r->model, &r->layers, &part);
}

Status run_layer_reach(InputStats *in, Run *r, const LayerWeights *w, Tap tap, bool gram)
{
    Backend  *be = r->o->backend;
    ArenaMark mark = backend_mark(be);
    TRY(place_part(r, w, tap));
    Status s = calibration_reach(in, &r->scratch, &r->calibration, w->number, tap, gram);
    backend_rewind(be, mark);
    return s;
}

Status run_layer_advance(Run *r, const LayerWeights *w)
{
    Backend  *be = r->o->backend;
    ArenaMark mark = backend_mark(be);
    TRY(place_part(r, w, TAP_HIDDEN));
    Status s = calibration_advance(&r->calibration, w->number);
    backend_rewind(be, mark);
    return s;
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

/* The same chunks whatever the number of threads. */
static RoundError weight_error(const float *w, const float *v, int64_t n)
{
    enum { CHUNKS = 64 };
    RoundError part[CHUNKS], all = {0};
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < CHUNKS; c++) {
        int64_t first = n / CHUNKS * c, end = c == CHUNKS - 1 ? n : n / CHUNKS * (c + 1);
        RoundSums sums = {0};
        rounding_add(&sums, w + first, v + first, end - first);
        part[c] = rounding_total(&sums);
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
        if (run_in_set(r, w, kind, tap) &&
            run_scheme(r, w->at[kind].name)->method == METHOD_GPTQ)
            first = &w->at[kind];
    TRY(run_layer_reach(in, r, w, tap, true));
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
    float    *before = NULL;
    if (s->method == METHOD_GPTQ || (in && in->gram)) {
        before = arena_raw(&r->scratch, m->n * m->k, sizeof *before);
        if (!before)
            FAIL(ERR_MEMORY, "out of memory: a copy of %s", m->name);
        memcpy(before, m->w, bytes);
    }
    TRY(method_encode(out, &job, &r->scratch));
    *f = (MatrixFigures){.weight = job.error, .damp = job.damp_used, .n_dead = job.n_dead};
    if (s->method == METHOD_GPTQ)
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

/* As the file has it: [inputs, outputs] where it is transposed, a few of the inputs at a
 * time. */
static Status export_matrix(Run *r, const LayerMatrix *m)
{
    enum { AT_ONCE = 256 };
    ArenaMark mark = arena_mark(&r->scratch);
    float    *turned;
    if (!m->transposed)
        return export_plain(r, m->name, m->w, m->n);
    ARENA_NEW(turned, &r->scratch, AT_ONCE * m->n);
    for (int64_t first = 0; first < m->k; first += AT_ONCE) {
        int64_t count = i64_min(AT_ONCE, m->k - first);
        for (int64_t i = 0; i < m->n; i++)
            for (int64_t k = 0; k < count; k++)
                turned[k * m->n + i] = m->w[i * m->k + first + k];
        TRY(export_floats(r->export, m->name, turned, first, count));
    }
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status code_matrix(Run *r, const LayerMatrix *m, MatrixFigures *f, const InputStats *in)
{
    const Scheme *s = run_scheme(r, m->name);
    ArenaMark     mark = arena_mark(&r->scratch);
    RtnCodes      codes;
    if (!m->name)
        return OK;
    TRY(export_plain(r, m->bias_name, m->bias, m->n));
    if (!s->bits)
        return export_matrix(r, m);
    TRY(run_codes(&codes, &r->scratch, s, m->n, m->k));
    TRY(run_encode(&codes, f, r, m, s, in));
    TRY(export_codes(r->export, m->name, &codes));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* All matrices of a set; the next tap sees what became of them. */
static Status code_tap(Run *r, LayerWeights *w, Tap tap)
{
    ArenaMark  mark = arena_mark(&r->scratch);
    InputStats in;
    bool       gathered = r->calibrated && run_has_inputs(r, w, tap);
    if (gathered)
        TRY(run_tap_inputs(&in, r, w, tap));
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        if (tap_of_weight((WeightKind)kind) == tap)
            TRY(code_matrix(r, &w->at[kind], &r->figures[w->number * N_WEIGHTS + kind],
                            gathered ? &in : NULL));
    r->factor = (GptqFactor){0};
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status export_layer(Run *r, const LayerWeights *w)
{
    const ModelConfig *c = &r->layers.info.config;
    for (int i = 0; i < 2; i++) {
        TRY(export_plain(r, w->norm_name[i], w->norm[i], c->hidden));
        TRY(export_plain(r, w->norm_bias_name[i], w->norm_bias[i], c->hidden));
    }
    return export_plain(r, w->head_norm_name, w->head_norm, c->value_dim);
}

static Status code_layer(Run *r, int64_t layer)
{
    ArenaMark    mark = arena_mark(&r->scratch);
    LayerWeights w;
    TRY(run_layer_open(&w, r, layer));
    if (r->calibrated)
        TRY(run_layer_transform(r, &w));
    for (int i = 0; i < RUN_SETS; i++)
        TRY(code_tap(r, &w, RUN_SET[i]));
    if (r->calibrated && layer + 1 < r->layers.info.config.n_layers)
        TRY(run_layer_advance(r, &w));
    TRY(export_layer(r, &w));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* Noting a layer waits for the disk, with a text for all of its hidden states: where notes are
 * apart, that takes at most a fortieth of the run, and what a stopped run has to do again is
 * 39 times as long as a note, or the seconds asked for. */
static Status note_layer(Run *r, int64_t layer)
{
    size_t bytes = (size_t)(r->layers.info.config.n_layers * N_WEIGHTS) * sizeof *r->figures;
    double now = clock_seconds(), apart = r->o->note_seconds;
    if (apart > 0 && now - r->noted < fmax(apart, 39 * r->note_took))
        return OK;
    TRY(export_layer_done(r->export, layer, r->figures, bytes, r->calibration.hidden,
                          (size_t)r->calibration.n_kept));
    r->noted = clock_seconds();
    r->note_took = r->noted - now;
    return OK;
}

Status run_layer(Run *r, int64_t layer)
{
    bool plain = run_layer_is_plain(r, layer);
    TRY(plain ? run_layer_rows(r, layer) : code_layer(r, layer));
    TRY(note_layer(r, layer));
    run_step(r, "layers");
    return OK;
}
