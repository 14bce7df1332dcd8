/* calibrate.c - the text through one layer at a time, batch after batch. */
#include "analysis/calibrate.h"

#include <stdio.h>

#include "analysis/model/forward.h"
#include "analysis/stats/input_stats.h"
#include "analysis/stats/summary.h"
#include "kernels/size.h"

Tap tap_of_weight(WeightKind kind)
{
    static const Tap TAPS[N_WEIGHTS] = {
        [W_Q] = TAP_QKV_IN, [W_K] = TAP_QKV_IN, [W_V] = TAP_QKV_IN, [W_O] = TAP_O_IN,
        [W_GATE] = TAP_MLP_IN, [W_UP] = TAP_MLP_IN, [W_DOWN] = TAP_DOWN_IN};
    CHECK((unsigned)kind < N_WEIGHTS);
    return TAPS[kind];
}

static int64_t batch_rows(const Calibration *c)
{
    return c->batch_tokens ? c->batch_tokens : SCORE_BATCH_TOKENS;
}

/* --- the text's embeddings --- */

static Status embed_rows(Calibration *c, int64_t first, int64_t n)
{
    Backend  *be = c->model->backend;
    int64_t   C = c->model->config.hidden;
    ArenaMark mark = backend_mark(be);
    Tensor    x;
    Status    s = OK;
    GUARD(backend_tensor(be, &x, 2, (int64_t[]){n, C}));
    GUARD(op_embed(be, &x, &c->model->embed, c->text->ids + first));
    GUARD(backend_download(be, c->hidden + first * C, &x));
out:
    backend_rewind(be, mark);
    return s;
}

Status calibration_open(Calibration *c, Arena *a, Model *m, const Sequences *text)
{
    int64_t T = text->start[text->n];
    *c = (Calibration){.model = m, .text = text};
    c->hidden = arena_raw(a, T * m->config.hidden, sizeof *c->hidden);
    if (!c->hidden)
        FAIL(ERR_MEMORY, "out of memory: hidden states of %lld tokens", (long long)T);
    for (int64_t t = 0; t < T; t += SCORE_BATCH_TOKENS)
        TRY(embed_rows(c, t, i64_min(SCORE_BATCH_TOKENS, T - t)));
    return OK;
}

/* --- one layer --- */

/* What is done with it: stats of the inputs at the tap, or, where there are none to fill,
 * hidden states of the tap in place of its input: its output, or those after attention. */
typedef struct {
    Calibration *c;
    int64_t      layer;
    Tap          tap;
    InputStats  *stats;
    Arena        scratch;
    char         what[64];   // "layer 3, o_in"
} LayerRun;

/* x: input of the layer, on the host, rows of the batch. */
static Status run_batch(LayerRun *r, const Batch *batch, float *x)
{
    Model        *m = r->c->model;
    Pass          p = {.m = m, .batch = batch, .quant = {.bits = 16}};
    ArenaMark     mark = backend_mark(m->backend);
    const Tensor *at;
    Status        s = OK;
    GUARD(forward_open(&p));
    GUARD(backend_upload(m->backend, &p.x, x));
    GUARD((r->c->attended ? forward_mlp : forward_layer)(&p, r->layer, r->tap, &at));
    if (r->stats)
        s = input_stats_add(r->stats, &r->scratch, m->backend, at, r->what);
    else
        s = backend_download(m->backend, x, &p.x);
out:
    backend_rewind(m->backend, mark);
    return s;
}

static Status run_batches(LayerRun *r)
{
    Calibration     *c = r->c;
    const Sequences *text = c->text;
    for (int64_t first = 0, end; first < text->n; first = end) {
        ArenaMark mark = arena_mark(&r->scratch);
        Batch     batch;
        end = sequences_end(text, first, batch_rows(c));
        TRY(sequences_batch(&batch, &r->scratch, text, first, end));
        TRY(run_batch(r, &batch, c->hidden + text->start[first] * c->model->config.hidden));
        arena_rewind(&r->scratch, mark);
        progress_step(c->progress, text->start[end], text->start[text->n], r->what);
    }
    return OK;
}

static Status run_layer(Calibration *c, int64_t layer, Tap tap, InputStats *stats)
{
    LayerRun r = {.c = c, .layer = layer, .tap = tap, .stats = stats};
    CHECK(layer >= 0 && layer < c->model->config.n_layers);
    snprintf(r.what, sizeof r.what, "layer %lld, %s", (long long)layer, tap_name(tap));
    Status s = run_batches(&r);
    arena_close(&r.scratch);
    return s;
}

Status calibration_inputs(InputStats *out, Arena *a, Calibration *c, int64_t layer, Tap tap,
                          bool with_gram)
{
    CHECK(tap != TAP_HIDDEN && (!c->attended || tap == TAP_MLP_IN || tap == TAP_DOWN_IN));
    TRY(input_stats_init(out, a, tap_channels(&c->model->config, tap), with_gram));
    TRY(run_layer(c, layer, tap, out));
    input_stats_close(out);
    return OK;
}

Status calibration_attend(Calibration *c, int64_t layer)
{
    CHECK(!c->attended);
    TRY(run_layer(c, layer, TAP_MLP_IN, NULL));
    c->attended = true;
    return OK;
}

Status calibration_advance(Calibration *c, int64_t layer)
{
    TRY(run_layer(c, layer, TAP_HIDDEN, NULL));
    c->attended = false;
    return OK;
}
