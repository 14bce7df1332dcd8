/* stablelm.c - StableLM-3B-4E1T and its kin, in the spelling of transformers and in that of
 * the files of 2023, `stablelm_epoch`. architectures.md 8.2. */
#include "analysis/model/archs/archs.h"

#define LAYER "model.layers.*."
#define ATTN LAYER "self_attn."
#define MLP LAYER "mlp."

static const TensorRule STABLELM_RULES[] = {
    EMBEDDING("model.embed_tokens.weight"),
    LAYER_NORM("model.norm", ROLE_NORM, WHEN_ALWAYS, WHEN_ALWAYS),
    HEAD("lm_head.weight"),
    LAYER_NORM(LAYER "input_layernorm", ROLE_NORM_ATTN, WHEN_ALWAYS, WHEN_ALWAYS),
    LAYER_NORM(LAYER "post_attention_layernorm", ROLE_NORM_MLP, WHEN_TWO_NORMS,
               WHEN_TWO_NORMS),
    MATRIX(ATTN "q_proj.weight", W_Q, DIM_Q, DIM_HIDDEN),
    MATRIX(ATTN "k_proj.weight", W_K, DIM_KV, DIM_HIDDEN),
    MATRIX(ATTN "v_proj.weight", W_V, DIM_KV, DIM_HIDDEN),
    MATRIX(ATTN "o_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),
    MATRIX(MLP "gate_proj.weight", W_GATE, DIM_INTER, DIM_HIDDEN),
    MATRIX(MLP "up_proj.weight", W_UP, DIM_INTER, DIM_HIDDEN),
    MATRIX(MLP "down_proj.weight", W_DOWN, DIM_HIDDEN, DIM_INTER),
    BIAS(ATTN "q_proj.bias", W_Q, WHEN_QKV_BIAS, DIM_Q),
    BIAS(ATTN "k_proj.bias", W_K, WHEN_QKV_BIAS, DIM_KV),
    BIAS(ATTN "v_proj.bias", W_V, WHEN_QKV_BIAS, DIM_KV),
    VECTOR_WHEN(ATTN "q_layernorm.norms.*.weight", ROLE_Q_NORM, WHEN_QK_NORM, DIM_HEAD),
    VECTOR_WHEN(ATTN "k_layernorm.norms.*.weight", ROLE_K_NORM, WHEN_QK_NORM, DIM_HEAD),
};

static const Key STABLELM_KEYS[] = {
    KEYS_SIZES, KEY_KV_HEADS, KEY_HEAD_DIM,
    KEY_EPS("norm_eps"), KEY_EPS("layer_norm_eps"),
    KEY_NUMBER("rope_pct", rotary, 1e-6, 1), KEY_ROTARY,
    KEY_FLAG("use_qkv_bias", qkv_bias),
    KEY_FLAG("qk_layernorm", qk_norm),
    KEY_FLAG("use_parallel_residual", parallel),
};

static const Arch ROWS[] = {
    {
        .architecture = "StableLmForCausalLM",
        .model_type = "stablelm",
        .old_architecture = "StableLMEpochForCausalLM",
        .old_type = "stablelm_epoch",
        .layer_norm = true,
        .partial = true,
        .defaults = {.hidden_act = "silu", .rope_theta = 10000, .rotary = 0.25,
                     .norm_weight = true, .norm_bias = true, .final_norm = true,
                     .max_position_embeddings = 4096, .norm_eps = 1e-5, .bos_token_id = 0,
                     .eos_token_id = 0},
        KEYS(STABLELM_KEYS),
        RULES(STABLELM_RULES),
    },
};

const ArchFamily ARCH_STABLELM = FAMILY(ROWS);
