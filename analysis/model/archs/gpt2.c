/* gpt2.c - GPT-2, whose matrices are stored transposed. architectures.md 8.2. */
#include <math.h>

#include "analysis/model/archs/archs.h"

#define LAYER "transformer.h.*."

/* A Conv1D of transformers: [inputs, outputs]. */
#define CONV1D(name, kind, rows, cols) \
    {name, (TensorRole)(ROLE_WEIGHT + (kind)), WHEN_ALWAYS, rows, cols, 0, true}

static const TensorRule GPT2_RULES[] = {
    EMBEDDING("transformer.wte.weight"),
    TABLE("transformer.wpe.weight", ROLE_POSITIONS, WHEN_ALWAYS, DIM_POSITIONS, DIM_HIDDEN),
    LAYER_NORM("transformer.ln_f", ROLE_NORM, WHEN_ALWAYS, WHEN_ALWAYS),
    HEAD("lm_head.weight"),
    LAYER_NORM(LAYER "ln_1", ROLE_NORM_ATTN, WHEN_ALWAYS, WHEN_ALWAYS),
    LAYER_NORM(LAYER "ln_2", ROLE_NORM_MLP, WHEN_ALWAYS, WHEN_ALWAYS),
    CONV1D(LAYER "attn.c_attn.weight", W_QKV, DIM_QKV, DIM_HIDDEN),
    CONV1D(LAYER "attn.c_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),
    CONV1D(LAYER "mlp.c_fc.weight", W_UP, DIM_INTER, DIM_HIDDEN),
    CONV1D(LAYER "mlp.c_proj.weight", W_DOWN, DIM_HIDDEN, DIM_INTER),
    BIAS(LAYER "attn.c_attn.bias", W_QKV, WHEN_ALWAYS, DIM_QKV),
    BIAS(LAYER "attn.c_proj.bias", W_O, WHEN_ALWAYS, DIM_HIDDEN),
    BIAS(LAYER "mlp.c_fc.bias", W_UP, WHEN_ALWAYS, DIM_INTER),
    BIAS(LAYER "mlp.c_proj.bias", W_DOWN, WHEN_ALWAYS, DIM_HIDDEN),
};

static const Key GPT2_KEYS[] = {
    KEY_VOCAB, KEY_HIDDEN("n_embd"), KEY_INTER("n_inner", false), KEY_LAYERS("n_layer"),
    KEY_HEADS("n_head"), KEY_CONTEXT("n_positions"), KEY_BOS, KEY_ACT("activation_function"),
    KEY_TIED, KEY_EPS("layer_norm_epsilon"),
    KEY_FLAG("scale_attn_weights", scaled),
    KEY_FLAG("scale_attn_by_inverse_layer_idx", scaled_by_layer),
    KEY_FLAG("add_cross_attention", cross_attention),
};

static Status fit_gpt2(Config *c, Arena *a, const Json *root, const char *path)
{
    (void)a, (void)root;
    for (int64_t l = 0; l < c->model.n_layers; l++) {
        if (!c->keys.scaled)
            c->layers[l].scale = sqrt((double)c->model.head_dim);
        if (c->keys.scaled_by_layer)
            c->layers[l].scale /= (double)(l + 1);
    }
    return fit_refuse(c->keys.cross_attention, path, "add_cross_attention",
                      "true is not supported");
}

static const Arch ROWS[] = {
    {
        .architecture = "GPT2LMHeadModel",
        .model_type = "gpt2",
        .layer_norm = true,
        .plain_mlp = true,
        .prefix = "transformer.",
        .defaults = {.hidden_act = "gelu_new", .norm_weight = true, .norm_bias = true,
                     .final_norm = true, .learned_positions = true, .qkv_bias = true,
                     .attention_bias = true, .mlp_bias = true, .tie_word_embeddings = true,
                     .scaled = true, .max_position_embeddings = 1024, .norm_eps = 1e-5,
                     .bos_token_id = 50256, .eos_token_id = 50256},
        KEYS(GPT2_KEYS),
        .fit = fit_gpt2,
        RULES(GPT2_RULES),
    },
};

const ArchFamily ARCH_GPT2 = FAMILY(ROWS);
