/* stablelm.c - StableLM-3B-4E1T and its kin: as transformers spells them, as the files of 2023
 * do (`stablelm_epoch`), and StableLM-Base-Alpha v2, whose matrices are fused. Its rows, per
 * head q, k, v, and its gate, the second half, were never checked on published weights.
 * architectures.md 8.2; the configuration and modeling code of stablelm_epoch. */
#include "analysis/model/archs/archs.h"

#define LAYER "model.layers.*."
#define ATTN LAYER "self_attn."
#define MLP LAYER "mlp."

#define RULES_BLOCK(second_norm, bias)                                              \
    EMBEDDING("model.embed_tokens.weight"),                                         \
        LAYER_NORM("model.norm", ROLE_NORM, WHEN_ALWAYS, WHEN_ALWAYS),              \
        HEAD("lm_head.weight"),                                                     \
        LAYER_NORM(LAYER "input_layernorm", ROLE_NORM_ATTN, WHEN_ALWAYS, WHEN_ALWAYS), \
        LAYER_NORM(LAYER "post_attention_layernorm", ROLE_NORM_MLP, second_norm,    \
                   second_norm),                                                    \
        RULES_LLAMA_LAYER(ATTN, MLP),                                          \
        MATRIX(ATTN "o_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),                     \
        RULES_QKV_BIAS(ATTN, bias)

static const TensorRule STABLELM_RULES[] = {
    RULES_BLOCK(WHEN_TWO_NORMS, WHEN_QKV_BIAS),
    VECTOR_WHEN(ATTN "q_layernorm.norms.*.weight", ROLE_Q_NORM, WHEN_QK_NORM, DIM_HEAD),
    VECTOR_WHEN(ATTN "k_layernorm.norms.*.weight", ROLE_K_NORM, WHEN_QK_NORM, DIM_HEAD),
};
static const TensorRule EPOCH_RULES[] = {RULES_BLOCK(WHEN_ALWAYS, WHEN_QKV_BIAS)};

#define ALPHA "transformer.layers.*."
static const TensorRule ALPHA_RULES[] = {
    EMBEDDING("transformer.embed.weight"),
    LAYER_NORM("transformer.final_norm", ROLE_NORM, WHEN_ALWAYS, WHEN_ALWAYS),
    HEAD("lm_head.weight"),
    LAYER_NORM(ALPHA "norm", ROLE_NORM_ATTN, WHEN_ALWAYS, WHEN_ALWAYS),
    MATRIX(ALPHA "attention.qkv_proj.weight", W_QKV, DIM_QKV, DIM_HIDDEN),
    MATRIX(ALPHA "attention.out_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),
    MATRIX(ALPHA "mlp.gate_proj.weight", W_GATE_UP, DIM_INTER2, DIM_HIDDEN),
    MATRIX(ALPHA "mlp.out_proj.weight", W_DOWN, DIM_HIDDEN, DIM_INTER),
};

/* --- keys --- */

static const Key STABLELM_KEYS[] = {
    KEYS_SIZES, KEY_KV_HEADS, KEY_EPS("layer_norm_eps"), KEY_ROTARY,
    KEY_FLAG("use_qkv_bias", qkv_bias),
    KEY_FLAG("qk_layernorm", qk_norm),
    KEY_FLAG("use_parallel_residual", parallel),
};

#define KEYS_OLD                                                              \
    KEY_EPS("norm_eps"), KEY_NUMBER("rope_pct", rotary, 1e-6, 1),             \
        KEY_COUNT("num_heads", num_heads, false, 1, 1 << 14),                 \
        KEY_NUMBER("rotary_scaling_factor", rotary_scaling_factor, 0, 1e6)

static const Key EPOCH_KEYS[] = {KEYS_SIZES, KEY_KV_HEADS, KEYS_OLD,
                                 KEY_FLAG("use_qkv_bias", qkv_bias)};
static const Key ALPHA_KEYS[] = {
    KEY_VOCAB, KEY_HIDDEN("hidden_size"), KEY_LAYERS("num_hidden_layers"),
    KEY_HEADS("num_heads"), KEY_CONTEXT("max_position_embeddings"), KEY_BOS,
    KEY_ACT("hidden_act"), KEY_TIED, KEY_THETA("rotary_emb_base"), KEYS_OLD,
    KEY_NUMBER("rotary_pct", rotary, 1e-6, 1),
};

static Status fit_old(Config *c, Arena *a, const Json *root, const char *path)
{
    const ConfigKeys *k = &c->keys;
    (void)a, (void)root;
    TRY(fit_refuse(k->rotary_scaling_factor != 1, path, "rotary_scaling_factor",
                   "expected 1"));
    return fit_refuse(k->num_heads && k->num_heads != k->num_attention_heads, path,
                      "num_heads", "expected num_attention_heads");
}

/* The first of these files have no key that would tell of biases. */
static Status fit_epoch(Config *c, Arena *a, const Json *root, const char *path)
{
    const Json *told = json_member(root, "use_qkv_bias");
    c->keys.bias_by_file = !told || told->kind == JSON_NULL;
    return fit_old(c, a, root, path);
}

/* The width of the MLP follows from the hidden one: 8/3 of it, up to a multiple of 256. */
static Status fit_alpha(Config *c, Arena *a, const Json *root, const char *path)
{
    int64_t inter = c->keys.hidden_size * 8 / 3;
    c->keys.intermediate_size = c->model.inter = (inter + 255) / 256 * 256;
    return fit_old(c, a, root, path);
}

/* --- the rows --- */

#define LIKE_STABLELM                                                          \
    .hidden_act = "silu", .rope_theta = 10000, .rotary = 0.25, .norm_weight = true, \
    .norm_bias = true, .final_norm = true, .max_position_embeddings = 4096,    \
    .norm_eps = 1e-5, .rotary_scaling_factor = 1, .bos_token_id = 0

static const Arch ROWS[] = {
    {
        .architecture = "StableLmForCausalLM",
        .model_type = "stablelm",
        .layer_norm = true,
        .partial = true,
        .defaults = {LIKE_STABLELM, .num_key_value_heads = 32, .eos_token_id = 0},
        KEYS(STABLELM_KEYS),
        RULES(STABLELM_RULES),
    },
    {
        .architecture = "StableLMEpochForCausalLM",
        .model_type = "stablelm_epoch",
        .layer_norm = true,
        .partial = true,
        .defaults = {LIKE_STABLELM, .num_key_value_heads = 32, .eos_token_id = 2},
        KEYS(EPOCH_KEYS),
        .fit = fit_epoch,
        RULES(EPOCH_RULES),
    },
    {
        .architecture = "StableLMAlphaForCausalLM",
        .model_type = "stablelm_alpha",
        .qkv = QKV_BY_HEAD,
        .layer_norm = true,
        .partial = true,
        .up_first = true,
        .defaults = {LIKE_STABLELM, .parallel = true, .eos_token_id = 0},
        KEYS(ALPHA_KEYS),
        .fit = fit_alpha,
        RULES(ALPHA_RULES),
    },
};

const ArchFamily ARCH_STABLELM = FAMILY(ROWS);
