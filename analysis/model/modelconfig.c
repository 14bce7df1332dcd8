/* modelconfig.c - widths that follow from a model's sizes. */
#include "analysis/modelconfig.h"

int64_t model_query_heads(const ModelConfig *c)
{
    return c->n_maps == 1 ? c->n_heads : c->n_heads + c->n_heads / c->n_signals;
}

int64_t model_key_heads(const ModelConfig *c)
{
    return c->n_groups * (c->shared_keys ? 1 : c->n_maps);
}

int64_t model_query_width(const ModelConfig *c)
{
    return model_query_heads(c) * c->head_dim;
}

int64_t model_key_width(const ModelConfig *c)
{
    return model_key_heads(c) * c->head_dim;
}

int64_t model_value_width(const ModelConfig *c)
{
    return c->n_groups * c->value_dim;
}

int64_t model_out_width(const ModelConfig *c)
{
    return c->n_heads * c->value_dim;
}

bool model_attends(const ModelConfig *c, int64_t layer)
{
    Mixer mixer = c->layers ? c->layers[layer].mixer : MIX_ATTENTION;
    return mixer == MIX_ATTENTION || mixer == MIX_CROSS;
}
