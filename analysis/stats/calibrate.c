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
        [W_Q] = TAP_QKV_IN,      [W_K] = TAP_QKV_IN,      [W_V] = TAP_QKV_IN,
        [W_QKV] = TAP_QKV_IN,    [W_LAMBDA] = TAP_QKV_IN, [W_SSM_IN] = TAP_QKV_IN,
        [W_SSM_U] = TAP_QKV_IN,  [W_SSM_Z] = TAP_QKV_IN,  [W_O] = TAP_O_IN,
        [W_GATE] = TAP_MLP_IN,   [W_UP] = TAP_MLP_IN,     [W_GATE_UP] = TAP_MLP_IN,
        [W_DOWN] = TAP_DOWN_IN,  [W_SSM_X] = TAP_HIDDEN,  [W_SSM_RANK] = TAP_HIDDEN,
        [W_SSM_BC] = TAP_HIDDEN, [W_SSM_DT] = TAP_HIDDEN};
    CHECK((unsigned)kind < N_WEIGHTS);
    return TAPS[kind];
}

/* What a batch leaves is read again at once, for the sums: half of what scoring takes lies in
 * the cache still. */
static int64_t batch_rows(const Calibration *c)
{
    return c->batch_tokens ? c->batch_tokens : SCORE_BATCH_TOKENS / 2;
}

/* --- what is kept of the text --- */

/* Does another layer read this one's keys and values? */
static bool lends_keys(const ModelConfig *c, int64_t layer)
{
    for (int64_t l = layer + 1; l < c->n_layers; l++)
        if (c->layers[l].keys_of == layer)
            return true;
    return false;
}

static bool has_mixer(const ModelConfig *c, Mixer mixer)
{
    for (int64_t l = 0; l < c->n_layers; l++)
        if (c->layers[l].mixer == mixer)
            return true;
    return false;
}

/* x: rows of a batch on the host; the layer's input becomes embeddings. */
static Status embed_batch(Calibration *c, const Batch *batch, const int32_t *ids, float *x)
{
    Model    *m = c->model;
    Pass      p = {.m = m, .batch = batch, .quant = {.bits = 16}};
    ArenaMark mark = backend_mark(m->backend);
    Status    s = OK;
    GUARD(forward_open(&p));
    GUARD(forward_embed(&p, ids));
    GUARD(backend_download(m->backend, x, &p.x));
out:
    backend_rewind(m->backend, mark);
    return s;
}

static Status embed_text(Calibration *c)
{
    const Sequences *text = c->text;
    Arena            scratch = {0};
    Status           s = OK;
    for (int64_t first = 0, end; first < text->n; first = end) {
        Batch   batch;
        int64_t at = text->start[first];
        end = sequences_end(text, first, batch_rows(c));
        GUARD(sequences_batch(&batch, &scratch, text, first, end));
        GUARD(embed_batch(c, &batch, text->ids + at, c->hidden + at * c->model->config.hidden));
    }
out:
    arena_close(&scratch);
    return s;
}

Status calibration_open(Calibration *c, Arena *a, Model *m, const Sequences *text)
{
    const ModelConfig *config = &m->config;
    int64_t T = text->start[text->n], inner = 0, keys = 0, values = 0;
    *c = (Calibration){.model = m, .text = text};
    if (has_mixer(config, MIX_MEMORY))
        inner = config->inner;
    if (has_mixer(config, MIX_CROSS)) {
        keys = model_key_width(config);
        values = model_value_width(config);
    }
    c->n_kept = T * (config->hidden + inner + keys + values);
    c->width = i64_max(i64_max(model_out_width(config), config->inner), config->inter);
    c->hidden = arena_alloc(a, c->n_kept, sizeof *c->hidden);
    c->passed = arena_raw(a, T * c->width, sizeof *c->passed);  // only what is used is touched
    if (!c->hidden || !c->passed)
        FAIL(ERR_MEMORY, "out of memory: hidden states of %lld tokens", (long long)T);
    float *next = c->hidden + T * config->hidden;
    c->memory = inner ? next : NULL;
    c->keys = keys ? next + T * inner : NULL;
    c->values = keys ? next + T * (inner + keys) : NULL;
    return embed_text(c);
}

Status calibration_restart(Calibration *c)
{
    c->reached = TAP_HIDDEN;
    return embed_text(c);
}

/* --- one layer --- */

/* From the tap that was reached to another: to see what passes there, to go on from there, or
 * both. */
typedef struct {
    Calibration *c;
    int64_t      layer;
    Tap          tap;
    InputStats  *stats;      // or NULL
    bool         stays;      // at the tap
    Arena        scratch;
    char         what[64];   // "layer 3, o_in"
} LayerRun;

static bool reads_passed(Tap reached)
{
    return reached == TAP_O_IN || reached == TAP_DOWN_IN;
}

static bool mixes(const LayerRun *r)
{
    return r->c->reached == TAP_HIDDEN && r->tap != TAP_QKV_IN;
}

/* What layers before this one have left for it. */
static Status bring_left(const LayerRun *r, Pass *p, int64_t row)
{
    const Calibration *c = r->c;
    Backend           *be = c->model->backend;
    Mixer              mixer = c->model->config.layers[r->layer].mixer;
    if (mixer == MIX_MEMORY)
        TRY(backend_upload(be, &p->memory, c->memory + row * p->memory.shape[1]));
    if (mixer != MIX_CROSS)
        return OK;
    TRY(backend_upload(be, &p->k, c->keys + row * p->k.shape[1]));
    return backend_upload(be, &p->v, c->values + row * p->v.shape[1]);
}

/* And what it leaves for layers after it. */
static Status take_left(const LayerRun *r, const Pass *p, int64_t row)
{
    Calibration *c = r->c;
    Backend     *be = c->model->backend;
    Mixer        mixer = c->model->config.layers[r->layer].mixer;
    if (c->memory && mixer == MIX_MAMBA)
        return backend_download(be, c->memory + row * p->memory.shape[1], &p->memory);
    if (!c->keys || mixer != MIX_ATTENTION || !lends_keys(&c->model->config, r->layer))
        return OK;
    TRY(backend_download(be, c->keys + row * p->k.shape[1], &p->k));
    return backend_download(be, c->values + row * p->v.shape[1], &p->v);
}

/* Is nothing added to hidden states on the way? */
static bool keeps_hidden(const LayerRun *r)
{
    return r->tap == TAP_QKV_IN || r->tap == TAP_O_IN || r->tap == r->c->reached;
}

/* The batch as it was where the layer was left. Hidden states are worked on where they lie, if
 * what they become is to stay; and so is what passes a tap. */
static Status bring(const LayerRun *r, Pass *p, int64_t row)
{
    Calibration *c = r->c;
    Backend     *be = c->model->backend;
    float       *x = c->hidden + row * c->model->config.hidden;
    float       *passed = c->passed + row * c->width;
    TRY(r->stays || keeps_hidden(r) ? backend_lend(be, &p->x, x) : backend_upload(be, &p->x, x));
    if (mixes(r))
        TRY(bring_left(r, p, row));
    if (reads_passed(c->reached))
        TRY(backend_lend(be, forward_passed(p, r->layer, c->reached), passed));
    if (r->stays && reads_passed(r->tap) && r->tap != c->reached)
        backend_lend_room(be, forward_passed(p, r->layer, r->tap), passed);
    return OK;
}

static Status take(const LayerRun *r, const Pass *p, const Tensor *at, int64_t row)
{
    Calibration *c = r->c;
    Backend     *be = c->model->backend;
    TRY(backend_return(be, c->hidden + row * c->model->config.hidden, &p->x));
    if (reads_passed(r->tap))
        TRY(backend_return(be, c->passed + row * c->width, at));
    return mixes(r) ? take_left(r, p, row) : OK;
}

/* The batch whose first row is `row` of the text. */
static Status run_batch(LayerRun *r, const Batch *batch, int64_t row)
{
    Model        *m = r->c->model;
    Pass          p = {.m = m, .batch = batch, .quant = {.bits = 16}};
    ArenaMark     mark = backend_mark(m->backend);
    const Tensor *at;
    Status        s = OK;
    GUARD(forward_open(&p));
    GUARD(bring(r, &p, row));
    GUARD(forward_from(&p, r->layer, r->c->reached, r->tap, &at));
    if (r->stats)
        GUARD(input_stats_add(r->stats, &r->scratch, m->backend, at, r->what));
    if (r->stays)
        GUARD(take(r, &p, at, row));
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
        TRY(run_batch(r, &batch, text->start[first]));
        arena_rewind(&r->scratch, mark);
        progress_step(c->progress, text->start[end], text->start[text->n], r->what);
    }
    return OK;
}

static Status run_layer(LayerRun *r)
{
    CHECK(r->layer >= 0 && r->layer < r->c->model->config.n_layers);
    snprintf(r->what, sizeof r->what, "layer %lld, %s", (long long)r->layer, tap_name(r->tap));
    Status s = run_batches(r);
    arena_close(&r->scratch);
    if (s == OK && r->stays)
        r->c->reached = r->tap;
    return s;
}

static Status gather(InputStats *out, Arena *a, Calibration *c, int64_t layer, Tap tap,
                     bool with_gram, bool stays)
{
    LayerRun r = {.c = c, .layer = layer, .tap = tap, .stats = out, .stays = stays};
    CHECK(tap != TAP_HIDDEN && tap >= c->reached);
    TRY(input_stats_init(out, a, tap_channels(&c->model->config, tap, layer), with_gram));
    out->dtype = c->model->dtype;
    TRY(run_layer(&r));
    input_stats_close(out);
    return OK;
}

Status calibration_inputs(InputStats *out, Arena *a, Calibration *c, int64_t layer, Tap tap,
                          bool with_gram)
{
    return gather(out, a, c, layer, tap, with_gram, false);
}

Status calibration_reach(InputStats *out, Arena *a, Calibration *c, int64_t layer, Tap tap,
                         bool with_gram)
{
    bool parallel = tap == TAP_MLP_IN && c->model->config.residual == RESIDUAL_PARALLEL;
    if (parallel && c->reached != TAP_O_IN)
        TRY(run_layer(&(LayerRun){.c = c, .layer = layer, .tap = TAP_O_IN, .stays = true}));
    return gather(out, a, c, layer, tap, with_gram, tap != TAP_QKV_IN && !parallel);
}

Status calibration_advance(Calibration *c, int64_t layer)
{
    return run_layer(&(LayerRun){.c = c, .layer = layer, .tap = TAP_HIDDEN, .stays = true});
}
