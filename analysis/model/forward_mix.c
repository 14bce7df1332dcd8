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

/* The layer's own products with its input. */
static Status project(Pass *p, int64_t layer)
{
    const ModelConfig *c = &p->m->config;
    Linear            *w = p->m->layers[layer].w;
    LinearOut          outs[4];
    int                n = 0;
    outs[n++] = (LinearOut){&p->q, &w[W_Q]};
    if (c->layers[layer].keys_of == layer) {
        outs[n++] = (LinearOut){&p->k, &w[W_K]};
        outs[n++] = (LinearOut){&p->v, &w[W_V]};
    }
    if (c->lambda_rows)
        outs[n++] = (LinearOut){&p->lambda, &w[W_LAMBDA]};
    return op_linears(p->m->backend, outs, n, &p->n);
}

/* Where all lies that the layer's queries attend to. The new ones are p->k and p->v. */
static void find_keys(Pass *p, int64_t layer, Tensor *keys, Tensor *values)
{
    if (p->cache) {
        cache_views(p->cache, p->m->config.layers[layer].keys_of, p->T, &p->k, &p->v, keys,
                    values);
        return;
    }
    *keys = p->k;
    *values = p->v;
}

/* From the products of its keys and values. */
static Status finish_keys(Pass *p, int64_t layer, Tensor *keys, Tensor *values)
{
    Backend           *be = p->m->backend;
    const ModelConfig *c = &p->m->config;
    if (c->layers[layer].keys_of != layer)
        return OK;   // as that layer has left them
    TRY(turn(p, &p->k, model_key_heads(c), &p->m->layers[layer].k_norm));
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
    find_keys(p, layer, &keys, &values);
    TRY(project(p, layer));
    TRY(turn(p, &p->q, model_query_heads(c), &l->q_norm));
    TRY(finish_keys(p, layer, &keys, &values));
    if (c->lambda_rows)
        TRY(op_sigmoid(be, &p->lambda));
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
    LinearOut in[] = {{&p->u, &l->w[W_SSM_U]}, {&p->z, &l->w[W_SSM_Z]}};
    LinearOut out[] = {{&p->rank, &l->w[W_SSM_RANK]}, {&p->bc, &l->w[W_SSM_BC]}};
    TRY(op_linears(be, in, 2, &p->n));
    TRY(op_convolve(be, &p->memory, &p->u, &l->conv, &l->conv_bias, p->batch, window));
    TRY(op_linears(be, out, 2, &p->memory));
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
