/* arch.c - finds a row, and what all rows have in common. */
#include "analysis/model/arch.h"

#include <stdio.h>
#include <string.h>

static const ArchFamily *const FAMILIES[] = {
    &ARCH_LLAMA, &ARCH_STABLELM, &ARCH_NEOX,  &ARCH_GPT2,
    &ARCH_OPT,   &ARCH_UNILM,    &ARCH_MOTIF, &ARCH_PHI4FLASH,
};
enum { N_FAMILIES = sizeof FAMILIES / sizeof *FAMILIES };

/* Either may be NULL: no name. */
static bool is_called(const char *name, const char *wanted)
{
    return name && wanted && strcmp(name, wanted) == 0;
}

bool arch_has_type(const Arch *a, const char *type)
{
    return is_called(type, a->model_type) || is_called(type, a->old_type);
}

const Arch *arch_find(const char *architecture, const char *model_type)
{
    for (int f = 0; f < N_FAMILIES; f++)
        for (const Arch *a = FAMILIES[f]->at; a < FAMILIES[f]->at + FAMILIES[f]->n; a++)
            if (architecture ? is_called(architecture, a->architecture)
                             : arch_has_type(a, model_type))
                return a;
    return NULL;
}

const char *arch_names(char *text)
{
    size_t at = 0;
    for (int f = 0; f < N_FAMILIES; f++)
        for (int i = 0; i < FAMILIES[f]->n && at < ARCH_NAMES; i++)
            at += (size_t)snprintf(text + at, ARCH_NAMES - at, "%s%s", at ? ", " : "",
                                   FAMILIES[f]->at[i].architecture);
    return text;
}

bool arch_quantizable(TensorRole role)
{
    return role < ROLE_BIAS && role != ROLE_WEIGHT + W_LAMBDA;
}

bool arch_linear(TensorRole role)
{
    return role < ROLE_BIAS || role == ROLE_HEAD || role == ROLE_PROJECT_IN ||
           role == ROLE_PROJECT_OUT;
}

bool arch_present(const TensorRule *rule, const ConfigKeys *k)
{
    switch (rule->when) {
    case WHEN_UNTIED:
        return !k->tie_word_embeddings;
    case WHEN_ATTENTION_BIAS:
        return k->attention_bias;
    case WHEN_QKV_BIAS:
        return k->qkv_bias;
    case WHEN_MLP_BIAS:
        return k->mlp_bias;
    case WHEN_NORM_WEIGHT:
        return k->norm_weight;
    case WHEN_NORM_BIAS:
        return k->norm_bias;
    case WHEN_QK_NORM:
        return k->qk_norm;
    case WHEN_TWO_NORMS:
        return !k->parallel;
    case WHEN_FINAL_NORM:
        return k->final_norm && k->norm_weight;
    case WHEN_FINAL_NORM_BIAS:
        return k->final_norm && k->norm_bias;
    case WHEN_PROJECTED:
        return k->embed_dim != k->hidden_size;
    default:
        return true;
    }
}

const char *arch_reason(TensorWhen when)
{
    static const char *const REASONS[] = {
        [WHEN_ALWAYS] = "such layer",
        [WHEN_UNTIED] = "head of its own",
        [WHEN_ATTENTION_BIAS] = "attention_bias",
        [WHEN_QKV_BIAS] = "bias of q, k and v",
        [WHEN_MLP_BIAS] = "mlp_bias",
        [WHEN_NORM_WEIGHT] = "weights of norms",
        [WHEN_NORM_BIAS] = "biases of norms",
        [WHEN_QK_NORM] = "norms of q and k",
        [WHEN_TWO_NORMS] = "second norm: use_parallel_residual is true",
        [WHEN_FINAL_NORM] = "norm after the last layer",
        [WHEN_FINAL_NORM_BIAS] = "norm after the last layer",
        [WHEN_PROJECTED] = "embedding of another width",
    };
    return REASONS[when];
}

const char *arch_bare_name(const Arch *a, const char *name)
{
    size_t n = a->prefix ? strlen(a->prefix) : 0;
    return n && strncmp(name, a->prefix, n) == 0 ? name + n : name;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

bool arch_ignores(const char *name)
{
    return ends_with(name, "rotary_emb.inv_freq") || ends_with(name, ".attention.bias") ||
           ends_with(name, ".attn.bias") || ends_with(name, ".masked_bias");
}
