/* forward.c - the forward pass, written once against the ops of a backend.
 *
 *   x = embed(ids)
 *   each layer:  x += Wo attention(rope(Wq n), rope(Wk n), Wv n),  n = norm(x)
 *                x += Wdown (act(Wgate n) * Wup n),                n = norm(x)
 *   out = norm(x)
 *
 * A layer is five stages, each of which ends at a tap: there the probe records what it
 * asks for, and there a run of a single layer can stop (forward.h). */
#include "analysis/model/forward.h"

#include <math.h>

#include "analysis/model/cache.h"
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

/* One table for all sequences, or, where the length matters, one for each, one
 * after another: then a sequence never depends on its neighbours. */
static Status make_angles(Pass *p)
{
    const ModelConfig *c = &p->m->config;
    const Batch       *b = p->batch;
    bool    apart = angles_follow_length(&c->rope);
    int64_t half = c->rope.dims / 2, rows = 0, longest = 0;
    for (int64_t s = 0; s < b->n_sequences; s++) {
        int64_t length = past_of(p, s) + sequence_length(b, s);
        longest = i64_max(longest, length);
        rows += length;
    }
    if (!apart)
        rows = longest;
    float *cs, *sn;
    ARENA_NEW(cs, &p->m->backend->arena, rows * half);
    ARENA_NEW(sn, &p->m->backend->arena, rows * half);
    int64_t first = 0;
    for (int64_t s = 0; s < b->n_sequences; s++) {
        int64_t past = past_of(p, s), length = past + sequence_length(b, s);
        if (apart)
            TRY(rope_tables(&c->rope, c->max_positions, length, length,
                            cs + first * half, sn + first * half));
        for (int64_t t = b->start[s]; t < b->start[s + 1]; t++) {
            p->place[t] = (int32_t)(past + t - b->start[s]);
            p->angle_row[t] = (int32_t)(first + p->place[t]);
        }
        first += apart ? length : 0;
    }
    if (!apart)
        TRY(rope_tables(&c->rope, c->max_positions, longest, longest, cs, sn));
    return upload_angles(p, rows, cs, sn);
}

static Status make_buffers(Pass *p)
{
    const ModelConfig *c = &p->m->config;
    Backend           *be = p->m->backend;
    int64_t queries = c->n_heads * c->n_maps * c->head_dim;
    int64_t keys = c->n_groups * c->n_maps * c->head_dim;
    TRY(tensor_rows(be, &p->x, p->T, c->hidden));
    TRY(tensor_rows(be, &p->n, p->T, c->hidden));
    TRY(tensor_rows(be, &p->q, p->T, queries));
    TRY(tensor_rows(be, &p->o, p->T, queries));
    if (!p->cache) {
        TRY(tensor_rows(be, &p->k, p->T, keys));
        TRY(tensor_rows(be, &p->v, p->T, keys));
    }
    if (p->branches) {
        int64_t S = p->branches->key_start[p->batch->n_sequences];
        TRY(tensor_rows(be, &p->keys, S, keys));
        TRY(tensor_rows(be, &p->values, S, keys));
    }
    TRY(tensor_rows(be, &p->gate, p->T, c->inter));
    return tensor_rows(be, &p->up, p->T, c->inter);
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
    return make_buffers(p);
}

/* --- one layer --- */

static Attention attention_of(const Pass *p, int64_t layer)
{
    const ModelConfig *c = &p->m->config;
    const Layer       *l = &p->m->layers[layer];
    Probe             *probe = p->probe;
    Attention          a = {
        .n_heads = c->n_heads,
        .n_groups = c->n_groups,
        .n_maps = c->n_maps,
        .head_dim = c->head_dim,
        .scale = (float)(1.0 / sqrt((double)c->head_dim)),
        .lambda = l->lambda,
        .norm_eps = (float)c->head_norm_eps,
        .out_scale = c->n_maps == 2 ? 1.0f - l->lambda_init : 1.0f,
        .dtype = p->m->dtype,
        .batch = *p->batch,
        .key_start = p->cache      ? p->key_start
                     : p->branches ? p->branches->key_start
                                   : NULL,
        .logit_bits = p->quant.bits,
        .logit_scale = p->quant.scale,
    };
    if (probe) {
        a.record = probe->logits ? &probe->logits[layer] : NULL;
        a.shares = probe->shares ? &probe->shares[layer * c->n_heads] : NULL;
        a.share_rows = probe->share_rows;
        a.spans = probe->spans;
        a.window = probe->window && probe->window_layer == layer ? probe->window : NULL;
    }
    return a;
}

/* --- what is rounded on the way (RunQuant) --- */

/* Nothing looks at an input again but the linear layers. */
static Status round_input(Pass *p, Tensor *x)
{
    RowRounding r = {p->quant.acts, p->quant.act_scale == ACTS_TENSOR, p->quant.act_wide};
    return r.bits ? op_fakequant_rows(p->m->backend, x, p->batch, &r) : OK;
}

static Tensor rows_from(const Tensor *t, int64_t first)
{
    return tensor_2d(DTYPE_F32, (float *)t->data + first * t->shape[1], t->shape[0] - first,
                     t->shape[1]);
}

/* keys, values: all of the cache, if there is one: whole groups are rounded already. */
static Status round_kv(Pass *p, const Tensor *keys, const Tensor *values)
{
    int64_t past = p->cache ? cache_length(p->cache) : 0, first = past - past % KV_GROUP;
    Tensor  k = rows_from(keys, first), v = rows_from(values, first);
    int32_t start[2] = {0, (int32_t)k.shape[0]};
    Batch   grown = {1, start, p->batch->number};
    if (!p->quant.kv)
        return OK;
    return op_fakequant_kv(p->m->backend, &k, &v, p->cache ? &grown : p->batch,
                           p->m->config.head_dim, p->quant.kv);
}

/* --- the stages of a layer --- */

static Status norm_for_attention(Pass *p, int64_t layer)
{
    Model *m = p->m;
    return op_rmsnorm(m->backend, &p->n, &p->x, &m->layers[layer].norm_attn,
                      (float)m->config.norm_eps);
}

static Status heads(Pass *p, int64_t layer)
{
    Backend           *be = p->m->backend;
    const ModelConfig *c = &p->m->config;
    const Layer       *l = &p->m->layers[layer];
    Tensor             keys = p->k, values = p->v;   // all that are attended to
    if (p->cache)
        cache_views(p->cache, layer, p->T, &p->k, &p->v, &keys, &values);
    TRY(op_linear(be, &p->q, &p->n, &l->w[W_Q]));
    TRY(op_linear(be, &p->k, &p->n, &l->w[W_K]));
    TRY(op_linear(be, &p->v, &p->n, &l->w[W_V]));
    TRY(op_rope(be, &p->q, c->n_heads * c->n_maps, &p->cs, &p->sn, p->angle_row));
    TRY(op_rope(be, &p->k, c->n_groups * c->n_maps, &p->cs, &p->sn, p->angle_row));
    if (p->branches) {   // a look-up in the tables k and v
        TRY(op_embed(be, &p->keys, &p->k, p->branches->key_rows));
        TRY(op_embed(be, &p->values, &p->v, p->branches->key_rows));
        keys = p->keys;
        values = p->values;
    }
    TRY(round_kv(p, &keys, &values));
    Attention a = attention_of(p, layer);
    return op_attention(be, &p->o, &p->q, &keys, &values, &a);
}

static Status norm_for_mlp(Pass *p, int64_t layer)
{
    Model *m = p->m;
    return op_rmsnorm(m->backend, &p->n, &p->x, &m->layers[layer].norm_mlp,
                      (float)m->config.norm_eps);
}

static Status add_attention(Pass *p, int64_t layer)
{
    Backend     *be = p->m->backend;
    const Layer *l = &p->m->layers[layer];
    TRY(op_linear(be, &p->n, &p->o, &l->w[W_O]));
    TRY(op_add(be, &p->x, &p->n));
    return norm_for_mlp(p, layer);
}

static Status gated(Pass *p, int64_t layer)
{
    Backend     *be = p->m->backend;
    const Layer *l = &p->m->layers[layer];
    TRY(op_linear(be, &p->gate, &p->n, &l->w[W_GATE]));
    TRY(op_linear(be, &p->up, &p->n, &l->w[W_UP]));
    return op_glu(be, &p->gate, &p->up, p->m->config.act);
}

static Status add_mlp(Pass *p, int64_t layer)
{
    Backend     *be = p->m->backend;
    const Layer *l = &p->m->layers[layer];
    TRY(op_linear(be, &p->n, &p->gate, &l->w[W_DOWN]));
    return op_add(be, &p->x, &p->n);
}

/* In the order of the pass; what passes the tap lies at that offset of the Pass. */
static const struct {
    Tap    tap;
    Status (*run)(Pass *p, int64_t layer);
    size_t values;
} STAGES[N_TAPS] = {
    {TAP_QKV_IN, norm_for_attention, offsetof(Pass, n)},
    {TAP_O_IN, heads, offsetof(Pass, o)},
    {TAP_MLP_IN, add_attention, offsetof(Pass, n)},
    {TAP_DOWN_IN, gated, offsetof(Pass, gate)},
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
    return run_stages(p, layer, 0, norm_for_attention, tap, at);
}

Status forward_mlp(Pass *p, int64_t layer, Tap tap, const Tensor **at)
{
    enum { MLP_STAGE = 2 };
    CHECK(STAGES[MLP_STAGE].tap == TAP_MLP_IN && tap != TAP_QKV_IN && tap != TAP_O_IN);
    return run_stages(p, layer, MLP_STAGE, norm_for_mlp, tap, at);
}

/* --- the whole pass --- */

static Status run_layers(Pass *p)
{
    const Tensor *x;
    for (int64_t l = 0; l < p->m->config.n_layers; l++) {
        TRY(forward_layer(p, l, TAP_HIDDEN, &x));
        if (p->probe && p->probe->on_hidden)
            TRY(p->probe->on_hidden(p->probe->on_hidden_context, l, x));
    }
    return OK;
}

static Status run(Pass *p, Tensor *out, const int32_t *ids)
{
    Model *m = p->m;
    TRY(forward_open(p));
    TRY(op_embed(m->backend, &p->x, &m->embed, ids));
    TRY(run_layers(p));
    TRY(op_rmsnorm(m->backend, out, &p->x, &m->norm, (float)m->config.norm_eps));
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

bool model_can_branch(const Model *m, RunQuant q)
{
    return (q.bits == 16 || q.scale == SCALE_ROW) &&
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
