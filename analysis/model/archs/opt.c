/* opt.c - OPT. The model of 350M parameters norms after each half of a layer, has no last norm
 * and embeds into fewer dims. architectures.md 8.2. */
#include "analysis/model/archs/archs.h"

#define DECODER "model.decoder."
#define LAYER DECODER "layers.*."
#define ATTN LAYER "self_attn."

static const TensorRule OPT_RULES[] = {
    TABLE(DECODER "embed_tokens.weight", ROLE_EMBED, WHEN_ALWAYS, DIM_VOCAB, DIM_EMBED),
    TABLE(DECODER "embed_positions.weight", ROLE_POSITIONS, WHEN_ALWAYS, DIM_POSITIONS,
          DIM_HIDDEN),
    TABLE(DECODER "project_in.weight", ROLE_PROJECT_IN, WHEN_PROJECTED, DIM_HIDDEN, DIM_EMBED),
    TABLE(DECODER "project_out.weight", ROLE_PROJECT_OUT, WHEN_PROJECTED, DIM_EMBED,
          DIM_HIDDEN),
    LAYER_NORM(DECODER "final_layer_norm", ROLE_NORM, WHEN_FINAL_NORM, WHEN_FINAL_NORM_BIAS),
    TABLE("lm_head.weight", ROLE_HEAD, WHEN_UNTIED, DIM_VOCAB, DIM_EMBED),
    LAYER_NORM(LAYER "self_attn_layer_norm", ROLE_NORM_ATTN, WHEN_NORM_WEIGHT, WHEN_NORM_BIAS),
    LAYER_NORM(LAYER "final_layer_norm", ROLE_NORM_MLP, WHEN_NORM_WEIGHT, WHEN_NORM_BIAS),
    MATRIX(ATTN "q_proj.weight", W_Q, DIM_Q, DIM_HIDDEN),
    MATRIX(ATTN "k_proj.weight", W_K, DIM_KV, DIM_HIDDEN),
    MATRIX(ATTN "v_proj.weight", W_V, DIM_KV, DIM_HIDDEN),
    MATRIX(ATTN "out_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),
    MATRIX(LAYER "fc1.weight", W_UP, DIM_INTER, DIM_HIDDEN),
    MATRIX(LAYER "fc2.weight", W_DOWN, DIM_HIDDEN, DIM_INTER),
    BIAS(ATTN "q_proj.bias", W_Q, WHEN_QKV_BIAS, DIM_Q),
    BIAS(ATTN "k_proj.bias", W_K, WHEN_QKV_BIAS, DIM_KV),
    BIAS(ATTN "v_proj.bias", W_V, WHEN_QKV_BIAS, DIM_KV),
    BIAS(ATTN "out_proj.bias", W_O, WHEN_ATTENTION_BIAS, DIM_HIDDEN),
    BIAS(LAYER "fc1.bias", W_UP, WHEN_MLP_BIAS, DIM_INTER),
    BIAS(LAYER "fc2.bias", W_DOWN, WHEN_MLP_BIAS, DIM_HIDDEN),
};

static const Key OPT_KEYS[] = {
    KEY_VOCAB, KEY_HIDDEN("hidden_size"), KEY_INTER("ffn_dim", true),
    KEY_LAYERS("num_hidden_layers"), KEY_HEADS("num_attention_heads"),
    KEY_CONTEXT("max_position_embeddings"), KEY_BOS, KEY_ACT("activation_function"), KEY_TIED,
    KEY_COUNT("word_embed_proj_dim", embed_dim, false, 1, 1 << 20),
    KEY_FLAG("enable_bias", qkv_bias), KEY_FLAG("enable_bias", attention_bias),
    KEY_FLAG("enable_bias", mlp_bias),
    KEY_FLAG("layer_norm_elementwise_affine", norm_weight),
    KEY_FLAG("layer_norm_elementwise_affine", norm_bias),
    KEY_FLAG("do_layer_norm_before", norm_before),
    KEY_FLAG("_remove_final_layer_norm", no_final_norm),
};

static Status fit_opt(Config *c, Arena *a, const Json *root, const char *path)
{
    ConfigKeys *k = &c->keys;
    (void)a, (void)root, (void)path;
    k->final_norm = k->norm_before && !k->no_final_norm;
    if (!k->norm_before)
        c->model.residual = RESIDUAL_POST;
    return OK;
}

static const Arch ROWS[] = {
    {
        .architecture = "OPTForCausalLM",
        .model_type = "opt",
        .layer_norm = true,
        .plain_mlp = true,
        .prefix = "model.",
        .defaults = {.hidden_act = "relu", .norm_weight = true, .norm_bias = true,
                     .norm_before = true, .learned_positions = true,
                     .first_position = 2, .qkv_bias = true, .attention_bias = true,
                     .mlp_bias = true, .tie_word_embeddings = true,
                     .max_position_embeddings = 2048, .norm_eps = 1e-5, .bos_token_id = 2,
                     .eos_token_id = 2},
        KEYS(OPT_KEYS),
        .fit = fit_opt,
        RULES(OPT_RULES),
    },
};

const ArchFamily ARCH_OPT = FAMILY(ROWS);
