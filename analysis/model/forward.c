/* forward.c - the forward pass, written once against the ops of a backend.
 *
 *   x = embed(ids)
 *   each layer:  x += Wo attention(rope(Wq n), rope(Wk n), Wv n),  n = norm(x)
 *                x += Wdown (act(Wgate n) * Wup n),                n = norm(x)
 *   out = norm(x)
 *
 * and the ways in which models depart from it, each named where it happens: what mixes the
 * positions (forward_mix.c), where norms stand (Residual), what kind of MLP there is.
 * A layer is five stages, each of which ends at a tap: there the probe records what it
 * asks for, and there a run of a single layer can stop (forward.h). */
#include "analysis/model/forward.h"

#include "analysis/model/cache.h"
#include "analysis/model/forward_mix.h"
#include "analysis/model/load.h"
#include "kernels/size.h"

/* --- what a batch needs --- */

static Status tensor_rows(Backend *be, Tensor *t, int64_t rows, int64_t width)
{
    return backend_tensor(be, t, 2, (int64_t[]){rows, width});
}

static int64_t sequence_length(const Batch *b, int64_t s)
{
    return b->start[s + 1] - b->start[s];
}

/* Do the angles of a position depend on the length of its sequence? */
static bool angles_follow_length(const Rope *r)
{
    return r->kind == ROPE_DYNAMIC || r->kind == ROPE_LONGROPE;
}

/* Positions before the first row of sequence s. */
static int64_t past_of(const Pass *p, int64_t s)
{
    if (p->cache)
        return cache_length(p->cache);
    const Branches *r = p->branches;
    return r ? r->key_start[s + 1] - r->key_start[s] - sequence_length(p->batch, s) : 0;
}

static Status upload_angles(Pass *p, int64_t rows, const float *cs, const float *sn)
{
    Backend *be = p->m->backend;
    int64_t  half = p->m->config.rope.dims / 2;
    TRY(tensor_rows(be, &p->cs, rows, half));
    TRY(tensor_rows(be, &p->sn, rows, half));
    TRY(backend_upload(be, &p->cs, cs));
    return backend_upload(be, &p->sn, sn);
}

/* Positions first .. end of the batch, those between its sequences' among them. */
typedef struct {
    int64_t first, end;
} Positions;

static Positions place_rows(Pass *p)
{
    const Batch *b = p->batch;
    Positions    all = {INT64_MAX, 0};
    for (int64_t s = 0; s < b->n_sequences; s++) {
        int64_t past = past_of(p, s), n = sequence_length(b, s);
        for (int64_t t = 0; t < n; t++)
            p->place[b->start[s] + t] = (int32_t)(past + t);
        all.first = i64_min(all.first, past);
        all.end = i64_max(all.end, past + n);
    }
    return all;
}

/* One table for all sequences. */
static Status shared_angles(Pass *p, Positions all, float *cs, float *sn)
{
    const ModelConfig *c = &p->m->config;
    for (int64_t t = 0; t < p->T; t++)
        p->angle_row[t] = (int32_t)(p->place[t] - all.first);
    return rope_rows(&c->rope, c->max_positions, all.end, all.first, all.end - all.first, cs,
                     sn);
}

/* Where the length matters, one for each: then a sequence never depends on its neighbours. */
static Status angles_apart(Pass *p, float *cs, float *sn)
{
    const ModelConfig *c = &p->m->config;
    const Batch       *b = p->batch;
    int64_t            half = c->rope.dims / 2;
    for (int64_t t = 0; t < p->T; t++)
        p->angle_row[t] = (int32_t)t;
    for (int64_t s = 0; s < b->n_sequences; s++) {
        int64_t past = past_of(p, s), n = sequence_length(b, s), at = b->start[s] * half;
        TRY(rope_rows(&c->rope, c->max_positions, past + n, past, n, cs + at, sn + at));
    }
    return OK;
}

static Status make_angles(Pass *p)
{
    bool      apart = angles_follow_length(&p->m->config.rope);
    Positions all = place_rows(p);
    int64_t   half = p->m->config.rope.dims / 2, rows = apart ? p->T : all.end - all.first;
    float    *cs, *sn;
    if (!half)
        return OK;
    ARENA_NEW(cs, &p->m->backend->arena, rows * half);
    ARENA_NEW(sn, &p->m->backend->arena, rows * half);
    TRY(apart ? angles_apart(p, cs, sn) : shared_angles(p, all, cs, sn));
    return upload_angles(p, rows, cs, sn);
}

Status forward_open(Pass *p)
{
    Backend *be = p->m->backend;
    CHECK(p->batch->n_sequences >= 1 && p->batch->start[0] == 0);
    CHECK(!p->cache || (p->batch->n_sequences == 1 && !p->branches));
    p->T = p->batch->start[p->batch->n_sequences];
    ARENA_NEW(p->place, &be->arena, p->T);
    ARENA_NEW(p->angle_row, &be->arena, p->T);
    if (p->cache) {
        TRY(cache_reserve(p->cache, p->T));
        p->key_start[1] = (int32_t)(cache_length(p->cache) + p->T);
    }
    TRY(make_angles(p));
    return forward_buffers(p);
}

/* x = embeddings, and, of models that have learned them, what stands for the positions. */
Status forward_embed(Pass *p, const int32_t *ids)
{
    Model             *m = p->m;
    const ModelConfig *c = &m->config;
    int32_t           *rows;
    TRY(m->embed.data ? op_embed(m->backend, &p->x, &m->embed, ids)
                      : load_rows(m, &p->x, ids));
    if (!c->n_positions)
        return OK;
    ARENA_NEW(rows, &m->backend->arena, p->T);
    for (int64_t t = 0; t < p->T; t++) {
        rows[t] = (int32_t)(p->place[t] + c->first_position);
        if (rows[t] >= c->n_positions)
            FAIL(ERR_RANGE, "position %d: %s has learned %lld", (int)p->place[t], m->name,
                 (long long)(c->n_positions - c->first_position));
    }
    TRY(op_embed(m->backend, &p->y, &m->positions, rows));
    return op_add(m->backend, &p->x, &p->y);
}

/* --- the stages of a layer --- */

/* Nothing looks at an input again but the linear layers. */
static Status round_input(Pass *p, Tensor *x)
{
    RowRounding r = {p->quant.acts, p->quant.act_scale == ACTS_TENSOR, p->quant.act_wide};
    return r.bits ? op_fakequant_rows(p->m->backend, x, p->batch, &r) : OK;
}

/* The input of a half of the layer. Norms that come after a half were there already. */
static Status enter(Pass *p, const Norm *norm)
{
    Backend *be = p->m->backend;
    if (p->m->config.residual == RESIDUAL_POST)
        return op_copy(be, &p->n, &p->x);
    return op_norm(be, &p->n, &p->x, 1, norm);
}

/* Adds what a half has made to x. */
static Status leave(Pass *p, const Linear *w, const Tensor *made, const Norm *norm)
{
    Backend *be = p->m->backend;
    TRY(op_linear(be, &p->y, made, w));
    TRY(op_add(be, &p->x, &p->y));
    return p->m->config.residual == RESIDUAL_POST ? op_norm(be, &p->x, &p->x, 1, norm) : OK;
}

static Status enter_attention(Pass *p, int64_t layer)
{
    return enter(p, &p->m->layers[layer].norm_attn);
}

static Status enter_mlp(Pass *p, int64_t layer)
{
    return enter(p, &p->m->layers[layer].norm_mlp);
}

/* Of a layer with parallel halves, both look at the same x. */
static Status add_attention(Pass *p, int64_t layer)
{
    const Layer *l = &p->m->layers[layer];
    bool         parallel = p->m->config.residual == RESIDUAL_PARALLEL;
    if (parallel)
        TRY(enter_mlp(p, layer));
    TRY(leave(p, &l->w[W_O], &p->o, &l->norm_attn));
    return parallel ? OK : enter_mlp(p, layer);
}

static Status activate(Pass *p, int64_t layer)
{
    Backend           *be = p->m->backend;
    const ModelConfig *c = &p->m->config;
    const Layer       *l = &p->m->layers[layer];
    if (!c->gated) {
        TRY(op_linear(be, &p->gate, &p->n, &l->w[W_UP]));
        return op_glu(be, &p->gate, NULL, c->act);
    }
    LinearOut outs[] = {{&p->gate, &l->w[W_GATE]}, {&p->up, &l->w[W_UP]}};
    TRY(op_linears(be, outs, 2, &p->n));
    return c->poly ? op_poly_glu(be, &p->gate, &p->up, l->poly)
                   : op_glu(be, &p->gate, &p->up, c->act);
}

static Status add_mlp(Pass *p, int64_t layer)
{
    const Layer *l = &p->m->layers[layer];
    return leave(p, &l->w[W_DOWN], &p->gate, &l->norm_mlp);
}

/* In the order of the pass; what passes the tap lies at that offset of the Pass. */
static const struct {
    Tap    tap;
    Status (*run)(Pass *p, int64_t layer);
    size_t values;
} STAGES[N_TAPS] = {
    {TAP_QKV_IN, enter_attention, offsetof(Pass, n)},
    {TAP_O_IN, mix_positions, offsetof(Pass, o)},
    {TAP_MLP_IN, add_attention, offsetof(Pass, n)},
    {TAP_DOWN_IN, activate, offsetof(Pass, gate)},
    {TAP_HIDDEN, add_mlp, offsetof(Pass, x)},
};

static Status record_tap(Pass *p, Tap tap, int64_t layer, const Tensor *x)
{
    if (!p->probe || !p->probe->values[tap])
        return OK;
    return op_record(p->m->backend, x, p->batch, p->place, &p->probe->values[tap][layer]);
}

/* Stages from `first` on, the first of which is `run`. */
static Status run_stages(Pass *p, int64_t layer, int first,
                         Status (*run)(Pass *p, int64_t layer), Tap tap, const Tensor **at)
{
    for (int i = first; i < N_TAPS; i++) {
        TRY((i == first ? run : STAGES[i].run)(p, layer));
        Tensor *x = (Tensor *)((char *)p + STAGES[i].values);
        *at = x;
        TRY(record_tap(p, STAGES[i].tap, layer, x));
        if (STAGES[i].tap == tap)
            break;
        TRY(round_input(p, x));
    }
    return OK;
}

Status forward_layer(Pass *p, int64_t layer, Tap tap, const Tensor **at)
{
    return run_stages(p, layer, 0, enter_attention, tap, at);
}

Tensor *forward_passed(Pass *p, int64_t layer, Tap tap)
{
    CHECK(tap == TAP_O_IN || tap == TAP_DOWN_IN);
    return tap == TAP_DOWN_IN ? &p->gate : mix_output(p, layer);
}

/* The stages that follow a tap; at TAP_MLP_IN x is there and its norm is taken anew. */
Status forward_from(Pass *p, int64_t layer, Tap from, Tap tap, const Tensor **at)
{
    enum { MLP_STAGE = 2, LAST_STAGE = N_TAPS - 1 };
    CHECK(STAGES[MLP_STAGE].tap == TAP_MLP_IN && (tap == TAP_HIDDEN || tap >= from));
    switch (from) {
    case TAP_O_IN:
    case TAP_DOWN_IN:
        p->o = *mix_output(p, layer);
        *at = from == TAP_O_IN ? &p->o : &p->gate;
        if (tap == from)
            return OK;
        return from == TAP_O_IN ? run_stages(p, layer, MLP_STAGE, add_attention, tap, at)
                                : run_stages(p, layer, LAST_STAGE, add_mlp, tap, at);
    case TAP_MLP_IN:
        CHECK(p->m->config.residual != RESIDUAL_PARALLEL);
        return run_stages(p, layer, MLP_STAGE, enter_mlp, tap, at);
    default:
        CHECK(from == TAP_HIDDEN);
        return forward_layer(p, layer, tap, at);
    }
}

/* --- the whole pass --- */

static Status run_layer(Pass *p, int64_t layer, const Tensor **x)
{
    Model *m = p->m;
    if (!m->streamed)
        return forward_layer(p, layer, TAP_HIDDEN, x);
    ArenaMark mark = backend_mark(m->backend);
    Status    s = load_layer(m, layer);
    if (s == OK)
        s = forward_layer(p, layer, TAP_HIDDEN, x);
    backend_rewind(m->backend, mark);
    load_forget(m, layer);
    return s;
}

static Status run_layers(Pass *p)
{
    const Tensor *x;
    for (int64_t l = 0; l < p->m->config.n_layers; l++) {
        TRY(run_layer(p, l, &x));
        if (p->probe && p->probe->on_hidden)
            TRY(p->probe->on_hidden(p->probe->on_hidden_context, l, x));
    }
    return OK;
}

static Status run(Pass *p, Tensor *out, const int32_t *ids)
{
    Model *m = p->m;
    if (m->streamed && !p->cache && !p->branches && !forward_carries(&m->config)) {
        TRY(forward_streamed(p, out, ids));
        return m->has_norm ? op_norm(m->backend, out, out, 1, &m->norm) : OK;
    }
    TRY(forward_open(p));
    TRY(forward_embed(p, ids));
    TRY(run_layers(p));
    TRY(m->has_norm ? op_norm(m->backend, out, &p->x, 1, &m->norm)
                    : op_copy(m->backend, out, &p->x));
    if (p->cache)
        cache_advance(p->cache, p->T);
    return OK;
}

static Status run_and_rewind(Pass *p, Tensor *out, const int32_t *ids)
{
    ArenaMark mark = backend_mark(p->m->backend);
    Status    s = run(p, out, ids);
    backend_rewind(p->m->backend, mark);
    return s;
}

Status model_forward(Model *m, Tensor *out, const int32_t *ids, const Batch *batch,
                     RunQuant quant, Probe *probe, Cache *cache)
{
    Pass p = {.m = m, .batch = batch, .probe = probe, .quant = quant, .cache = cache};
    return run_and_rewind(&p, out, ids);
}

/* A scan goes over the rows of a sequence as they lie. */
static bool scans(const ModelConfig *c)
{
    for (int64_t l = 0; l < c->n_layers; l++)
        if (c->layers[l].mixer != MIX_ATTENTION)
            return true;
    return false;
}

bool model_can_branch(const Model *m, RunQuant q)
{
    return !scans(&m->config) && (q.bits == 16 || q.scale == SCALE_ROW) &&
           (q.acts == 0 || q.act_scale == ACTS_TOKEN) && q.kv == 0 &&
           !angles_follow_length(&m->config.rope);
}

Status model_forward_branches(Model *m, Tensor *out, const int32_t *ids,
                              const Branches *branches, RunQuant quant)
{
    Pass p = {.m = m, .batch = &branches->batch, .quant = quant, .branches = branches};
    CHECK(model_can_branch(m, quant));
    return run_and_rewind(&p, out, ids);
}
