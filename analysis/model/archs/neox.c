/* neox.c - GPT-NeoX and Pythia. architectures.md 8.2. */
#include "analysis/model/archs/archs.h"

#define LAYER "gpt_neox.layers.*."
#define ATTN LAYER "attention."
#define MLP LAYER "mlp."

static const TensorRule NEOX_RULES[] = {
    EMBEDDING("gpt_neox.embed_in.weight"),
    LAYER_NORM("gpt_neox.final_layer_norm", ROLE_NORM, WHEN_ALWAYS, WHEN_ALWAYS),
    HEAD("embed_out.weight"),
    LAYER_NORM(LAYER "input_layernorm", ROLE_NORM_ATTN, WHEN_ALWAYS, WHEN_ALWAYS),
    LAYER_NORM(LAYER "post_attention_layernorm", ROLE_NORM_MLP, WHEN_ALWAYS, WHEN_ALWAYS),
    MATRIX(ATTN "query_key_value.weight", W_QKV, DIM_QKV, DIM_HIDDEN),
    MATRIX(ATTN "dense.weight", W_O, DIM_HIDDEN, DIM_OUT),
    MATRIX(MLP "dense_h_to_4h.weight", W_UP, DIM_INTER, DIM_HIDDEN),
    MATRIX(MLP "dense_4h_to_h.weight", W_DOWN, DIM_HIDDEN, DIM_INTER),
    BIAS(ATTN "query_key_value.bias", W_QKV, WHEN_QKV_BIAS, DIM_QKV),
    BIAS(ATTN "dense.bias", W_O, WHEN_ATTENTION_BIAS, DIM_HIDDEN),
    BIAS(MLP "dense_h_to_4h.bias", W_UP, WHEN_ALWAYS, DIM_INTER),
    BIAS(MLP "dense_4h_to_h.bias", W_DOWN, WHEN_ALWAYS, DIM_HIDDEN),
};

static const Key NEOX_KEYS[] = {
    KEY_VOCAB, KEY_HIDDEN("hidden_size"), KEY_INTER("intermediate_size", true),
    KEY_LAYERS("num_hidden_layers"), KEY_HEADS("num_attention_heads"), KEY_KV_HEADS,
    KEY_CONTEXT("max_position_embeddings"), KEY_BOS, KEY_ACT("hidden_act"), KEY_TIED,
    KEY_EPS("layer_norm_eps"), KEY_THETA("rotary_emb_base"),
    KEY_NUMBER("rotary_pct", rotary, 1e-6, 1),
    KEY_NUMBER("rope_theta", top_theta, 2, 1e15),
    KEY_NUMBER("partial_rotary_factor", top_rotary, 1e-6, 1),
    KEY_FLAG("use_parallel_residual", parallel),
    KEY_FLAG("attention_bias", attention_bias), KEY_FLAG("attention_bias", qkv_bias),
};

/* transformers 5 reads neither rope_theta nor partial_rotary_factor where they stand alone. */
static Status fit_neox(Config *c, Arena *a, const Json *root, const char *path)
{
    const ConfigKeys *k = &c->keys;
    (void)a, (void)root;
    TRY(fit_refuse(k->top_theta != 0 && k->top_theta != k->rope_theta, path, "rope_theta",
                   "is not rotary_emb_base, which is what counts"));
    TRY(fit_refuse(k->top_rotary != 0 && k->top_rotary != k->rotary, path,
                   "partial_rotary_factor", "is not rotary_pct, which is what counts"));
    return fit_refuse(k->num_key_value_heads != k->num_attention_heads, path,
                      "num_key_value_heads", "expected num_attention_heads");
}

static const Arch ROWS[] = {
    {
        .architecture = "GPTNeoXForCausalLM",
        .model_type = "gpt_neox",
        .qkv = QKV_BY_HEAD,
        .layer_norm = true,
        .plain_mlp = true,
        .partial = true,
        .defaults = {.hidden_act = "gelu", .rope_theta = 10000, .rotary = 0.25,
                     .norm_weight = true, .norm_bias = true, .final_norm = true,
                     .parallel = true, .attention_bias = true, .qkv_bias = true,
                     .max_position_embeddings = 2048, .norm_eps = 1e-5, .bos_token_id = 0,
                     .eos_token_id = 2},
        KEYS(NEOX_KEYS),
        .fit = fit_neox,
        RULES(NEOX_RULES),
    },
};

const ArchFamily ARCH_NEOX = FAMILY(ROWS);
