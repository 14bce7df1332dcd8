/* llama.c - Llama and those that differ from it by biases, norms of q and k, and windows.
 * Facts: transformers' configuration_*.py and modeling_*.py of each; architectures.md 4, 8. */
#include "analysis/model/archs/archs.h"

#define LAYER "model.layers.*."
#define ATTN LAYER "self_attn."
#define MLP LAYER "mlp."

#define RULES_PLAIN                                                            \
    EMBEDDING("model.embed_tokens.weight"),                                    \
        VECTOR("model.norm.weight", ROLE_NORM, DIM_HIDDEN), HEAD("lm_head.weight"), \
        VECTOR(LAYER "input_layernorm.weight", ROLE_NORM_ATTN, DIM_HIDDEN),    \
        VECTOR(LAYER "post_attention_layernorm.weight", ROLE_NORM_MLP, DIM_HIDDEN), \
        RULES_LLAMA_LAYER(ATTN, MLP),                                          \
        MATRIX(ATTN "o_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),                \
        RULES_QKV_BIAS(ATTN, WHEN_QKV_BIAS),                                   \
        BIAS(ATTN "o_proj.bias", W_O, WHEN_ATTENTION_BIAS, DIM_HIDDEN)

static const TensorRule LLAMA_RULES[] = {
    RULES_PLAIN,
    BIAS(MLP "gate_proj.bias", W_GATE, WHEN_MLP_BIAS, DIM_INTER),
    BIAS(MLP "up_proj.bias", W_UP, WHEN_MLP_BIAS, DIM_INTER),
    BIAS(MLP "down_proj.bias", W_DOWN, WHEN_MLP_BIAS, DIM_HIDDEN),
};
static const TensorRule DIFF_RULES[] = {RULES_PLAIN, RULES_LAMBDA(ATTN)};
static const TensorRule MISTRAL_RULES[] = {RULES_PLAIN};
static const TensorRule QWEN3_RULES[] = {
    RULES_PLAIN,
    VECTOR(ATTN "q_norm.weight", ROLE_Q_NORM, DIM_HEAD),
    VECTOR(ATTN "k_norm.weight", ROLE_K_NORM, DIM_HEAD),
};

/* --- keys --- */

#define KEYS_LLAMA                                                             \
    KEYS_SIZES, KEY_EPS("rms_norm_eps"), KEY_KV_HEADS, KEY_HEAD_DIM, KEY_ROTARY,\
        KEY_FLAG("attention_bias", attention_bias), KEY_FLAG("attention_bias", qkv_bias)
#define KEYS_MISTRAL \
    KEYS_SIZES, KEY_EPS("rms_norm_eps"), KEY_KV_HEADS, KEY_HEAD_DIM, KEY_ROTARY, KEY_WINDOW
#define KEYS_QWEN                                                              \
    KEYS_MISTRAL, KEY_FLAG("use_sliding_window", use_sliding_window),          \
        KEY_COUNT("max_window_layers", max_window_layers, false, 0, 1 << 14)

static const Key LLAMA_KEYS[] = {KEYS_LLAMA, KEY_FLAG("mlp_bias", mlp_bias)};
/* DiffLlama's MLP has no biases, whatever its config says. */
static const Key DIFF_KEYS[] = {KEYS_LLAMA};
static const Key MISTRAL_KEYS[] = {KEYS_MISTRAL};
static const Key QWEN2_KEYS[] = {KEYS_QWEN};
static const Key QWEN3_KEYS[] = {KEYS_QWEN, KEY_FLAG("attention_bias", attention_bias),
                                 KEY_FLAG("attention_bias", qkv_bias)};

/* --- what the rows cannot say --- */

/* The norm of the heads has no eps of its own. */
static Status fit_diff(Config *c, Arena *a, const Json *root, const char *path)
{
    (void)a, (void)root, (void)path;
    c->model.head_norm_eps = c->keys.norm_eps;
    return OK;
}

/* Its class takes one width for all layers, whatever layer_types says. */
static Status fit_mistral(Config *c, Arena *a, const Json *root, const char *path)
{
    const Json *width = json_member(root, "sliding_window");
    int64_t     reach = width && width->kind == JSON_NULL ? 0 : c->keys.sliding_window;
    TRY(fit_windows(c, a, root, path));
    for (int64_t i = 0; i < c->model.n_layers; i++)
        TRY(fit_refuse(c->layers[i].reach != reach, path, "layer_types",
                       "expected one kind for all layers, that of sliding_window"));
    return OK;
}

/* --- the rows --- */

#define LIKE_LLAMA \
    .hidden_act = "silu", .rope_theta = 10000, .rotary = 1, .norm_weight = true, \
    .final_norm = true
/* Numbers that are meant where a file leaves them out, whatever its other sizes. */
#define QWEN .num_key_value_heads = 32, .sliding_window = 4096, .max_window_layers = 28
/* A window is meant wherever there is a width. */
#define WINDOW .sliding_window = 4096, .use_sliding_window = true

static const Arch ROWS[] = {
    {
        .architecture = "LlamaForCausalLM",
        .model_type = "llama",
        .defaults = {LIKE_LLAMA, .max_position_embeddings = 2048, .norm_eps = 1e-6,
                     .bos_token_id = 1, .eos_token_id = 2},
        KEYS(LLAMA_KEYS),
        RULES(LLAMA_RULES),
    },
    {
        .architecture = "DiffLlamaForCausalLM",
        .model_type = "diffllama",
        .pairing = PAIR_HALVES,
        .defaults = {LIKE_LLAMA, .max_position_embeddings = 2048, .norm_eps = 1e-5,
                     .bos_token_id = 1, .eos_token_id = 2},
        KEYS(DIFF_KEYS),
        .fit = fit_diff,
        RULES(DIFF_RULES),
    },
    {
        .architecture = "MistralForCausalLM",
        .model_type = "mistral",
        .defaults = {LIKE_LLAMA, WINDOW, .num_key_value_heads = 8,
                     .max_position_embeddings = 4096 * 32, .norm_eps = 1e-6,
                     .bos_token_id = 1, .eos_token_id = 2},
        KEYS(MISTRAL_KEYS),
        .fit = fit_mistral,
        RULES(MISTRAL_RULES),
    },
    {
        .architecture = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .defaults = {LIKE_LLAMA, QWEN,
                     .max_position_embeddings = 32768, .norm_eps = 1e-6, .qkv_bias = true,
                     .bos_token_id = -1, .eos_token_id = -1},
        KEYS(QWEN2_KEYS),
        .fit = fit_windows,
        RULES(MISTRAL_RULES),
    },
    {
        .architecture = "Qwen3ForCausalLM",
        .model_type = "qwen3",
        .defaults = {LIKE_LLAMA, QWEN,
                     .max_position_embeddings = 32768, .norm_eps = 1e-6, .head_dim = 128,
                     .qk_norm = true, .bos_token_id = -1, .eos_token_id = -1},
        KEYS(QWEN3_KEYS),
        .fit = fit_windows,
        RULES(QWEN3_RULES),
    },
};

const ArchFamily ARCH_LLAMA = FAMILY(ROWS);
