/* forward_mix.c - attention, plain and differential; Mamba and the units that read its memory. */
#include "analysis/model/forward_mix.h"

#include <math.h>

#include "analysis/model/cache.h"

/* --- attention --- */

static Attention attention_of(const Pass *p, int64_t layer)
{
    const ModelConfig *c = &p->m->config;
    const Layer       *l = &p->m->layers[layer];
    Probe             *probe = p->probe;
    bool               by_layer = c->n_maps == 2 && !c->lambda_rows;
    Attention          a = {
        .n_heads = c->n_heads,
        .n_groups = c->n_groups,
        .n_maps = c->n_maps,
        .head_dim = c->head_dim,
        .n_signals = c->n_signals,
        .shared_keys = c->shared_keys,
        .value_dim = c->value_dim,
        .reach = c->layers[layer].reach,
        .scale = (float)(c->layers[layer].scale / sqrt((double)c->head_dim)),
        .lambda = by_layer ? l->lambda : 0,
        .lambda_rows = c->lambda_rows ? p->lambda.data : NULL,
        .norm_eps = (float)c->head_norm_eps,
        .norm_weight = l->head_norm.data,
        .out_scale = by_layer ? 1.0f - l->lambda_init : 1.0f,
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

/* Norm and RoPE of the heads of q or k. */
static Status turn(Pass *p, Tensor *x, int64_t heads, const Norm *norm)
{
    const ModelConfig *c = &p->m->config;
    if (c->qk_norm)
        TRY(op_norm(p->m->backend, x, x, heads, norm));
    return c->rope.dims ? op_rope(p->m->backend, x, heads, &p->cs, &p->sn, p->angle_row) : OK;
}

/* All that the layer's queries attend to. */
static Status make_keys(Pass *p, int64_t layer, Tensor *keys, Tensor *values)
{
    Backend           *be = p->m->backend;
    const ModelConfig *c = &p->m->config;
    const Layer       *l = &p->m->layers[layer];
    int64_t            of = c->layers[layer].keys_of;
    if (p->cache)
        cache_views(p->cache, of, p->T, &p->k, &p->v, keys, values);
    else {
        *keys = p->k;
        *values = p->v;
    }
    if (of != layer)
        return OK;   // as that layer has left them
    TRY(op_linear(be, &p->k, &p->n, &l->w[W_K]));
    TRY(op_linear(be, &p->v, &p->n, &l->w[W_V]));
    TRY(turn(p, &p->k, model_key_heads(c), &l->k_norm));
    if (p->branches) {   // a look-up in the tables k and v
        TRY(op_embed(be, &p->keys, &p->k, p->branches->key_rows));
        TRY(op_embed(be, &p->values, &p->v, p->branches->key_rows));
        *keys = p->keys;
        *values = p->values;
    }
    return round_kv(p, keys, values);
}

static Status attend(Pass *p, int64_t layer)
{
    Backend           *be = p->m->backend;
    const ModelConfig *c = &p->m->config;
    const Layer       *l = &p->m->layers[layer];
    Tensor             keys, values;
    TRY(op_linear(be, &p->q, &p->n, &l->w[W_Q]));
    TRY(turn(p, &p->q, model_query_heads(c), &l->q_norm));
    TRY(make_keys(p, layer, &keys, &values));
    if (c->lambda_rows) {
        TRY(op_linear(be, &p->lambda, &p->n, &l->w[W_LAMBDA]));
        TRY(op_sigmoid(be, &p->lambda));
    }
    Attention a = attention_of(p, layer);
    p->o = p->heads;
    return op_attention(be, &p->o, &p->q, &keys, &values, &a);
}

/* --- Mamba --- */

/* memory = scan(convolution(U n)); what it lets through is gated by Z n. */
static Status scan(Pass *p, int64_t layer)
{
    Backend     *be = p->m->backend;
    const Layer *l = &p->m->layers[layer];
    Tensor      *window = NULL, *state = NULL;
    if (p->cache)
        cache_states(p->cache, layer, &window, &state);
    TRY(op_linear(be, &p->u, &p->n, &l->w[W_SSM_U]));
    TRY(op_linear(be, &p->z, &p->n, &l->w[W_SSM_Z]));
    TRY(op_convolve(be, &p->memory, &p->u, &l->conv, &l->conv_bias, p->batch, window));
    TRY(op_linear(be, &p->rank, &p->memory, &l->w[W_SSM_RANK]));
    TRY(op_linear(be, &p->bc, &p->memory, &l->w[W_SSM_BC]));
    TRY(op_linear(be, &p->u, &p->rank, &l->w[W_SSM_DT]));
    TRY(op_scan(be, &p->memory, &p->memory, &p->u, &p->bc, &l->scan, p->batch, state));
    p->o = p->z;
    return op_glu(be, &p->o, &p->memory, ACT_SILU);
}

/* What the last scan has left, gated anew. */
static Status recall(Pass *p, int64_t layer)
{
    Backend *be = p->m->backend;
    TRY(op_linear(be, &p->z, &p->n, &p->m->layers[layer].w[W_SSM_Z]));
    p->o = p->z;
    return op_glu(be, &p->o, &p->memory, ACT_SILU);
}

Tensor *mix_output(Pass *p, int64_t layer)
{
    Mixer mixer = p->m->config.layers[layer].mixer;
    return mixer == MIX_MAMBA || mixer == MIX_MEMORY ? &p->z : &p->heads;
}

Status mix_positions(Pass *p, int64_t layer)
{
    switch (p->m->config.layers[layer].mixer) {
    case MIX_MAMBA:
        return scan(p, layer);
    case MIX_MEMORY:
        return recall(p, layer);
    default:
        return attend(p, layer);
    }
}
