/* memory.c - what work on a model takes, from its sizes alone. */
#include "analysis/model/packed.h"
#include "analysis/model.h"
#include "kernels/size.h"

/* Matrices that mix positions. */
static int64_t mixer_weights(const ModelConfig *c, Mixer mixer)
{
    int64_t C = c->hidden, E = c->inner, own = 0;
    switch (mixer) {
    case MIX_ATTENTION:
        own = model_key_width(c) + model_value_width(c);
        /* fall through */
    case MIX_CROSS:
        own += model_query_width(c) + model_out_width(c);
        return C * (own + (c->lambda_rows ? c->n_heads : 0));
    case MIX_MAMBA:
        return 3 * C * E + E * (2 * c->rank + 2 * c->n_states);
    default:
        return 2 * C * E;
    }
}

static Mixer mixer_of(const ModelConfig *c, int64_t layer)
{
    return c->layers ? c->layers[layer].mixer : MIX_ATTENTION;
}

static int64_t block_weights(const ModelConfig *c)
{
    int64_t sum = 0;
    for (int64_t l = 0; l < c->n_layers; l++)
        sum += mixer_weights(c, mixer_of(c, l)) + (c->gated ? 3 : 2) * c->hidden * c->inter;
    return sum;
}

/* One layer's tap, as value_record_init takes it. */
static size_t value_record_bytes(int64_t channels, int64_t positions)
{
    return sizeof(ValueRecord) + HIST_BINS * sizeof(uint64_t) +
           (size_t)channels * (sizeof(float) + sizeof(uint64_t)) +
           (size_t)positions * sizeof(float);
}

static size_t layer_record_bytes(const ModelConfig *c, int64_t layer, int64_t T)
{
    size_t  M = (size_t)c->n_maps, H = (size_t)c->n_heads;
    int64_t out = model_attends(c, layer) ? model_out_width(c) : c->inner;
    size_t  taps = 3 * value_record_bytes(c->hidden, T) + value_record_bytes(out, T) +
                  value_record_bytes(c->inter, T);
    size_t logits = sizeof(LogitRecord) + H * M * sizeof(Moments) +
                    M * HIST_BINS * sizeof(uint64_t) + 2 * M * (size_t)T * sizeof(float);
    return taps + logits + H * sizeof(ShareRecord);
}

/* Floats of one position while a pass runs. */
static int64_t row_width(const ModelConfig *c)
{
    return 3 * c->hidden + model_query_width(c) + model_out_width(c) + model_key_width(c) +
           model_value_width(c) + (c->gated ? 2 : 1) * c->inter + 3 * c->inner + c->rank +
           2 * c->n_states + c->rope.dims;
}

ModelMemory model_memory(const ModelConfig *c, Dtype dtype, int64_t T)
{
    size_t  embed = (size_t)(c->vocab * c->hidden), records = 0;
    size_t  packed = (size_t)block_weights(c) + embed;
    int64_t rows = i64_max(i64_max(c->vocab, c->inter), model_query_width(c));
    int64_t gathered = c->n_maps == 1 ? 0 : model_query_width(c);
    for (int64_t l = 0; l < c->n_layers; l++)
        records += layer_record_bytes(c, l, T);
    return (ModelMemory){
        .weights = packed * dtype_size(dtype) + embed * sizeof(float),
        .loading = (size_t)((rows + gathered) * c->hidden) * sizeof(float),
        .activations = (size_t)(T * row_width(c)) * sizeof(float),
        .records = records,
    };
}

/* Matrices of few bits stay so: the products decode them as they go. */
ModelMemory model_info_memory(const ModelInfo *info, Dtype dtype, int64_t T)
{
    ModelMemory m = model_memory(&info->config, dtype, T);
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        if (!t->quantizable || !t->packed || !packed_has_codes(t->packed))
            continue;
        m.weights -= (size_t)tensor_count(&t->view) * dtype_size(dtype);
        m.weights += packed_loaded_bytes(t->packed);
    }
    return m;
}
