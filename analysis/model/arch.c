/* arch.c - the rows. Facts: transformers' configuration_*.py and modeling_*.py. */
#include "analysis/model/arch.h"

#include <stdio.h>
#include <string.h>

#define LAYER "model.layers.*."
#define ATTN LAYER "self_attn."
#define MLP LAYER "mlp."

/* The last four are DiffLlama's own. */
static const TensorRule LLAMA_RULES[] = {
    {"model.embed_tokens.weight", ROLE_EMBED, WHEN_ALWAYS, DIM_VOCAB, DIM_HIDDEN},
    {"model.norm.weight", ROLE_NORM, WHEN_ALWAYS, DIM_HIDDEN, DIM_NONE},
    {"lm_head.weight", ROLE_HEAD, WHEN_UNTIED, DIM_VOCAB, DIM_HIDDEN},
    {LAYER "input_layernorm.weight", ROLE_NORM_ATTN, WHEN_ALWAYS, DIM_HIDDEN, DIM_NONE},
    {LAYER "post_attention_layernorm.weight", ROLE_NORM_MLP, WHEN_ALWAYS, DIM_HIDDEN, DIM_NONE},
    {ATTN "q_proj.weight", ROLE_WEIGHT + W_Q, WHEN_ALWAYS, DIM_Q, DIM_HIDDEN},
    {ATTN "k_proj.weight", ROLE_WEIGHT + W_K, WHEN_ALWAYS, DIM_KV, DIM_HIDDEN},
    {ATTN "v_proj.weight", ROLE_WEIGHT + W_V, WHEN_ALWAYS, DIM_KV, DIM_HIDDEN},
    {ATTN "o_proj.weight", ROLE_WEIGHT + W_O, WHEN_ALWAYS, DIM_HIDDEN, DIM_Q},
    {MLP "gate_proj.weight", ROLE_WEIGHT + W_GATE, WHEN_ALWAYS, DIM_INTER, DIM_HIDDEN},
    {MLP "up_proj.weight", ROLE_WEIGHT + W_UP, WHEN_ALWAYS, DIM_INTER, DIM_HIDDEN},
    {MLP "down_proj.weight", ROLE_WEIGHT + W_DOWN, WHEN_ALWAYS, DIM_HIDDEN, DIM_INTER},
    {ATTN "q_proj.bias", ROLE_BIAS + W_Q, WHEN_ATTENTION_BIAS, DIM_Q, DIM_NONE},
    {ATTN "k_proj.bias", ROLE_BIAS + W_K, WHEN_ATTENTION_BIAS, DIM_KV, DIM_NONE},
    {ATTN "v_proj.bias", ROLE_BIAS + W_V, WHEN_ATTENTION_BIAS, DIM_KV, DIM_NONE},
    {ATTN "o_proj.bias", ROLE_BIAS + W_O, WHEN_ATTENTION_BIAS, DIM_HIDDEN, DIM_NONE},
    {MLP "gate_proj.bias", ROLE_BIAS + W_GATE, WHEN_MLP_BIAS, DIM_INTER, DIM_NONE},
    {MLP "up_proj.bias", ROLE_BIAS + W_UP, WHEN_MLP_BIAS, DIM_INTER, DIM_NONE},
    {MLP "down_proj.bias", ROLE_BIAS + W_DOWN, WHEN_MLP_BIAS, DIM_HIDDEN, DIM_NONE},
    {ATTN "lambda_q1", ROLE_LAMBDA_Q1, WHEN_ALWAYS, DIM_HEAD, DIM_NONE},
    {ATTN "lambda_k1", ROLE_LAMBDA_K1, WHEN_ALWAYS, DIM_HEAD, DIM_NONE},
    {ATTN "lambda_q2", ROLE_LAMBDA_Q2, WHEN_ALWAYS, DIM_HEAD, DIM_NONE},
    {ATTN "lambda_k2", ROLE_LAMBDA_K2, WHEN_ALWAYS, DIM_HEAD, DIM_NONE},
};

enum { N_LLAMA_RULES = sizeof LLAMA_RULES / sizeof *LLAMA_RULES };

static const Arch ARCHS[] = {
    {
        .architecture = "LlamaForCausalLM",
        .model_type = "llama",
        .pairing = PAIR_NONE,
        .mlp_bias = true,
        .defaults = {.max_position_embeddings = 2048,
                     .rms_norm_eps = 1e-6,
                     .hidden_act = "silu",
                     .bos_token_id = 1,
                     .eos_token_id = 2},
        .rules = LLAMA_RULES,
        .n_rules = N_LLAMA_RULES - 4,
    },
    {
        .architecture = "DiffLlamaForCausalLM",
        .model_type = "diffllama",
        .pairing = PAIR_HALVES,
        .head_norm = true,
        .defaults = {.max_position_embeddings = 2048,
                     .rms_norm_eps = 1e-5,
                     .hidden_act = "silu",
                     .bos_token_id = 1,
                     .eos_token_id = 2},
        .rules = LLAMA_RULES,
        .n_rules = N_LLAMA_RULES,
    },
};

enum { N_ARCHS = sizeof ARCHS / sizeof *ARCHS };

const Arch *arch_find(const char *architecture, const char *model_type)
{
    for (int i = 0; i < N_ARCHS; i++) {
        const char *mine = architecture ? ARCHS[i].architecture : ARCHS[i].model_type;
        const char *wanted = architecture ? architecture : model_type;
        if (wanted && strcmp(wanted, mine) == 0)
            return &ARCHS[i];
    }
    return NULL;
}

const char *arch_names(char *text)
{
    size_t at = 0;
    for (int i = 0; i < N_ARCHS && at < ARCH_NAMES; i++)
        at += (size_t)snprintf(text + at, ARCH_NAMES - at, "%s%s", i ? ", " : "",
                               ARCHS[i].architecture);
    return text;
}

bool arch_quantizable(TensorRole role)
{
    return role < ROLE_BIAS;
}

bool arch_present(const TensorRule *rule, const ConfigKeys *k)
{
    switch (rule->when) {
    case WHEN_UNTIED:
        return !k->tie_word_embeddings;
    case WHEN_ATTENTION_BIAS:
        return k->attention_bias;
    case WHEN_MLP_BIAS:
        return k->mlp_bias;
    default:
        return true;
    }
}

bool arch_ignores(const char *name)
{
    static const char END[] = "rotary_emb.inv_freq";
    size_t            n = strlen(name), end = sizeof END - 1;
    return n >= end && strcmp(name + n - end, END) == 0;
}
