/* motif.c - Motif-2.6B and Motif-2-12.7B: PolyNorm, and in the larger one several signal heads
 * to a noise head. architectures.md 5. */
#include "analysis/model/archs/archs.h"

#define LAYER "model.layers.*."
#define ATTN LAYER "self_attn."
#define MLP LAYER "mlp."

static const TensorRule MOTIF_RULES[] = {
    EMBEDDING("model.embed_tokens.weight"),
    VECTOR("model.norm.weight", ROLE_NORM, DIM_HIDDEN),
    HEAD("lm_head.weight"),
    VECTOR(LAYER "input_layernorm.weight", ROLE_NORM_ATTN, DIM_HIDDEN),
    VECTOR(LAYER "post_attention_layernorm.weight", ROLE_NORM_MLP, DIM_HIDDEN),
    RULES_LLAMA_LAYER(ATTN, MLP),
    MATRIX(ATTN "o_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),
    RULES_LAMBDA(ATTN),
    VECTOR(ATTN "subln.weight", ROLE_HEAD_NORM, DIM_VALUE),
    VECTOR(MLP "act_fn.weight", ROLE_POLY, DIM_3),
    VECTOR(MLP "act_fn.bias", ROLE_POLY_BIAS, DIM_1),
};

static const Key MOTIF_KEYS[] = {
    KEYS_SIZES, KEY_KV_HEADS, KEY_HEAD_DIM, KEY_ROTARY, KEY_EPS("rms_norm_eps"),
    KEY_NUMBER("attn_rms_norm_eps", head_norm_eps, 0, 1),
    KEY_COUNT("num_noise_heads", num_noise_heads, false, 1, 1 << 14),
    KEY_COUNT("k_ratio", k_ratio, false, 1, 1 << 14),
    KEY_FLAG("use_bias", qkv_bias), KEY_FLAG("attention_bias", qkv_bias),
    KEY_FLAG("qkv_bias", qkv_bias), KEY_FLAG("use_sliding_window", use_sliding_window),
};

/* r signal heads and their noise; each pair of key heads serves as many of both. */
static Status fit_groups(Config *c, const char *path)
{
    const ConfigKeys *k = &c->keys;
    int64_t           N = k->num_attention_heads, noise = k->num_noise_heads;
    if (k->k_ratio != 1)
        FAIL(ERR_UNSUPPORTED, "%s: k_ratio is %lld, expected 1", path, (long long)k->k_ratio);
    if (N <= noise || N % noise || noise % c->model.n_groups)
        FAIL(ERR_SHAPE, "%s: num_noise_heads is %lld, expected to divide num_attention_heads, "
             "%lld, and to be a multiple of half of num_key_value_heads, %lld", path,
             (long long)noise, (long long)N, (long long)k->num_key_value_heads);
    c->model.n_heads = N - noise;
    c->model.n_signals = N / noise - 1;
    return OK;
}

/* Motif-3 has the same model_type: a mixture of experts with latent attention. */
static Status fit_motif(Config *c, Arena *a, const Json *root, const char *path)
{
    static const char *const OF_MOTIF3[] = {"kv_lora_rank", "q_lora_rank", "n_routed_experts",
                                            "num_experts", "attention_cls", "diff_v2"};
    (void)a;
    for (size_t i = 0; i < sizeof OF_MOTIF3 / sizeof *OF_MOTIF3; i++) {
        const Json *v = json_member(root, OF_MOTIF3[i]);
        TRY(fit_refuse(v && v->kind != JSON_NULL, path, OF_MOTIF3[i],
                       "Motif-3 and its kin, mixtures of experts, are not supported"));
    }
    TRY(fit_refuse(!c->model.poly, path, "hidden_act", "expected poly_norm"));
    TRY(fit_refuse(c->keys.qkv_bias, path, "use_bias", "true is not supported"));
    TRY(fit_refuse(c->keys.use_sliding_window, path, "use_sliding_window",
                   "true is not supported"));
    c->model.head_norm_eps = c->keys.head_norm_eps;
    return c->keys.num_noise_heads ? fit_groups(c, path) : OK;
}

static const Arch ROWS[] = {
    {
        .architecture = "MotifForCausalLM",
        .model_type = "motif",
        .old_type = "Motif",
        .pairing = PAIR_NEXT,
        .lambda_shift = -1,
        .defaults = {.hidden_act = "poly_norm", .rope_theta = 10000, .rotary = 1,
                     .norm_weight = true, .final_norm = true, .tied_by_file = true,
                     .k_ratio = 1, .max_position_embeddings = 8192, .norm_eps = 1e-6,
                     .head_norm_eps = 1e-5,
                     .bos_token_id = -1, .eos_token_id = -1},
        KEYS(MOTIF_KEYS),
        .fit = fit_motif,
        RULES(MOTIF_RULES),
    },
};

const ArchFamily ARCH_MOTIF = FAMILY(ROWS);
