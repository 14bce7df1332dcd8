/* unilm.c - microsoft/unilm's differential attention, first and second form, in the block that
 * the paper describes. Its code is the attention alone and comes with no config: `unilm@PATH`
 * (layout.h) writes the config that these rows read. architectures.md 2, 3. */
#include "analysis/model/archs/archs.h"

#define LAYER "model.layers.*."
#define ATTN LAYER "self_attn."
#define MLP LAYER "mlp."

#define RULES_BLOCK                                                                  \
    EMBEDDING("model.embed_tokens.weight"),                                          \
        VECTOR("model.norm.weight", ROLE_NORM, DIM_HIDDEN), HEAD("lm_head.weight"),  \
        VECTOR(LAYER "input_layernorm.weight", ROLE_NORM_ATTN, DIM_HIDDEN),          \
        VECTOR(LAYER "post_attention_layernorm.weight", ROLE_NORM_MLP, DIM_HIDDEN),  \
        RULES_LLAMA_LAYER(ATTN, MLP)

static const TensorRule FIRST_RULES[] = {
    RULES_BLOCK,
    MATRIX(ATTN "out_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),
    RULES_LAMBDA(ATTN),
    VECTOR(ATTN "subln.weight", ROLE_HEAD_NORM, DIM_VALUE),
};

static const TensorRule SECOND_RULES[] = {
    RULES_BLOCK,
    MATRIX(ATTN "o_proj.weight", W_O, DIM_HIDDEN, DIM_OUT),
    MATRIX(ATTN "lambda_proj.weight", W_LAMBDA, DIM_HEADS, DIM_HIDDEN),
};

static const Key UNILM_KEYS[] = {KEYS_SIZES, KEY_KV_HEADS, KEY_HEAD_DIM,
                                 KEY_EPS("rms_norm_eps")};

#define BLOCK                                                                      \
    .hidden_act = "silu", .rope_theta = 10000, .rotary = 1, .norm_weight = true,   \
    .final_norm = true, .norm_eps = 1e-5, .max_position_embeddings = 2048,         \
    .bos_token_id = -1, .eos_token_id = -1

static Status fit_first(Config *c, Arena *a, const Json *root, const char *path)
{
    (void)a, (void)root, (void)path;
    c->model.head_norm_eps = 1e-5;
    return OK;
}

static const Arch ROWS[] = {
    {
        .architecture = "UnilmDiffForCausalLM",
        .model_type = "unilm_diff",
        .pairing = PAIR_NEXT,
        .turns_next = true,
        .defaults = {BLOCK},
        KEYS(UNILM_KEYS),
        .fit = fit_first,
        RULES(FIRST_RULES),
    },
    {
        .architecture = "UnilmDiff2ForCausalLM",
        .model_type = "unilm_diff2",
        .pairing = PAIR_SHARED,
        .turns_next = true,
        .defaults = {BLOCK},
        KEYS(UNILM_KEYS),
        RULES(SECOND_RULES),
    },
};

const ArchFamily ARCH_UNILM = FAMILY(ROWS);
