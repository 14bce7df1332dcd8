/* phi4flash.c - Phi-4-mini-flash-reasoning: Mamba, differential attention in a window, one
 * layer of whole differential attention, then layers that read its keys and values or the last
 * Mamba layer's memory. No RoPE. architectures.md 6. */
#include <string.h>

#include "analysis/model/archs/archs.h"

#define LAYER "model.layers.*."
#define ATTN LAYER "attn."
#define INNER ATTN "inner_cross_attn."

static const TensorRule PHI4FLASH_RULES[] = {
    EMBEDDING("model.embed_tokens.weight"),
    LAYER_NORM("model.final_layernorm", ROLE_NORM, WHEN_ALWAYS, WHEN_ALWAYS),
    HEAD("lm_head.weight"),
    LAYER_NORM(LAYER "input_layernorm", ROLE_NORM_ATTN, WHEN_ALWAYS, WHEN_ALWAYS),
    LAYER_NORM(LAYER "post_attention_layernorm", ROLE_NORM_MLP, WHEN_ALWAYS, WHEN_ALWAYS),
    MATRIX_ON(ATTN "Wqkv.weight", W_QKV, DIM_QKV, DIM_HIDDEN, ON_SELF),
    BIAS_ON(ATTN "Wqkv.bias", W_QKV, WHEN_ALWAYS, DIM_QKV, ON_SELF),
    MATRIX_ON(ATTN "Wqkv.weight", W_Q, DIM_Q, DIM_HIDDEN, ON_CROSS),
    BIAS_ON(ATTN "Wqkv.bias", W_Q, WHEN_ALWAYS, DIM_Q, ON_CROSS),
    MATRIX_ON(ATTN "out_proj.weight", W_O, DIM_HIDDEN, DIM_OUT, ON_ATTENTION),
    BIAS_ON(ATTN "out_proj.bias", W_O, WHEN_ALWAYS, DIM_HIDDEN, ON_ATTENTION),
    VECTOR_ON(INNER "lambda_q1", ROLE_LAMBDA_Q1, WHEN_ALWAYS, DIM_HEAD, ON_ATTENTION),
    VECTOR_ON(INNER "lambda_k1", ROLE_LAMBDA_K1, WHEN_ALWAYS, DIM_HEAD, ON_ATTENTION),
    VECTOR_ON(INNER "lambda_q2", ROLE_LAMBDA_Q2, WHEN_ALWAYS, DIM_HEAD, ON_ATTENTION),
    VECTOR_ON(INNER "lambda_k2", ROLE_LAMBDA_K2, WHEN_ALWAYS, DIM_HEAD, ON_ATTENTION),
    VECTOR_ON(INNER "subln.weight", ROLE_HEAD_NORM, WHEN_ALWAYS, DIM_VALUE, ON_ATTENTION),
    MATRIX_ON(ATTN "in_proj.weight", W_SSM_IN, DIM_INNER2, DIM_HIDDEN, ON_MAMBA),
    {ATTN "conv1d.weight", ROLE_CONV, WHEN_ALWAYS, DIM_INNER, DIM_TAPS, ON_MAMBA, false},
    VECTOR_ON(ATTN "conv1d.bias", ROLE_CONV_BIAS, WHEN_ALWAYS, DIM_INNER, ON_MAMBA),
    MATRIX_ON(ATTN "x_proj.weight", W_SSM_X, DIM_SSM_X, DIM_INNER, ON_MAMBA),
    MATRIX_ON(ATTN "dt_proj.weight", W_SSM_DT, DIM_INNER, DIM_RANK, ON_MAMBA),
    BIAS_ON(ATTN "dt_proj.bias", W_SSM_DT, WHEN_ALWAYS, DIM_INNER, ON_MAMBA),
    {ATTN "A_log", ROLE_A_LOG, WHEN_ALWAYS, DIM_INNER, DIM_STATES, ON_MAMBA, false},
    VECTOR_ON(ATTN "D", ROLE_SSM_D, WHEN_ALWAYS, DIM_INNER, ON_MAMBA),
    MATRIX_ON(ATTN "in_proj.weight", W_SSM_Z, DIM_INNER, DIM_HIDDEN, ON_MEMORY),
    MATRIX_ON(ATTN "out_proj.weight", W_O, DIM_HIDDEN, DIM_INNER, ON_MAMBA | ON_MEMORY),
    MATRIX(LAYER "mlp.fc1.weight", W_GATE_UP, DIM_INTER2, DIM_HIDDEN),
    MATRIX(LAYER "mlp.fc2.weight", W_DOWN, DIM_HIDDEN, DIM_INTER),
};

static const Key PHI4FLASH_KEYS[] = {
    KEY_VOCAB, KEY_HIDDEN("hidden_size"), KEY_INTER("intermediate_size", true),
    KEY_LAYERS("num_hidden_layers"), KEY_HEADS("num_attention_heads"), KEY_KV_HEADS,
    KEY_CONTEXT("max_position_embeddings"), KEY_BOS, KEY_ACT("hidden_act"), KEY_TIED,
    KEY_EPS("layer_norm_eps"),
    KEY_COUNT("mb_per_layer", mamba_step, false, 0, 1 << 14),
    KEY_COUNT("mamba_d_state", d_state, false, 1, 1 << 12),
    KEY_COUNT("mamba_d_conv", d_conv, false, 1, 1 << 8),
    KEY_COUNT("mamba_expand", expand, false, 1, 1 << 8),
    KEY_FLAG("mamba_proj_bias", mamba_proj_bias), KEY_FLAG("lm_head_bias", head_bias),
    KEY_FLAG("mamba_conv_bias", mamba_conv_bias), KEY_FLAG("mlp_bias", mlp_bias),
};

/* The layer map: even layers scan, odd ones attend; from the middle on there is one more of
 * each, and then those that read from these two. */
static void map_layers(Config *c)
{
    int64_t half = c->model.n_layers / 2;
    for (int64_t i = 0; i < c->model.n_layers; i++) {
        LayerConfig *l = &c->layers[i];
        bool         even = i % 2 == 0, late = i >= half + 2;
        l->mixer = even ? late ? MIX_MEMORY : MIX_MAMBA : late ? MIX_CROSS : MIX_ATTENTION;
        l->keys_of = late ? half + 1 : i;
    }
}

/* A width for all, or, in early files, one for each layer with null for none. */
static Status read_windows(Config *c, const Json *root, const char *path)
{
    const Json *v = json_member(root, "sliding_window");
    int64_t     n = c->model.n_layers, half = n / 2;
    bool        list = v && v->kind == JSON_LIST;
    if (list && v->n != n)
        FAIL(ERR_SHAPE, "%s: sliding_window has %lld entries, expected num_hidden_layers, %lld",
             path, (long long)v->n, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const Json *w = list ? &v->at[i] : v;
        bool        own = c->layers[i].mixer == MIX_ATTENTION;
        if ((!own && !list) || (!list && i >= half) || (w && w->kind == JSON_NULL))
            continue;
        if (!own)
            FAIL(ERR_UNSUPPORTED, "%s: sliding_window[%lld] is for a layer without keys of its "
                 "own, expected null", path, (long long)i);
        if (w && (w->kind != JSON_NUMBER || !w->whole || w->integer < 1 ||
                  w->integer > 1 << 30))
            FAIL(ERR_FORMAT, "%s: sliding_window is no whole number from 1 on, nor a list of "
                 "them", path);
        c->layers[i].reach = w ? w->integer : 2047;   // the class's own
    }
    return OK;
}

/* Later files say the same once more, and the model's own code reads either. */
static Status check_types(const Config *c, const Json *root, const char *path)
{
    const Json *types = json_member(root, "layer_types");
    int64_t     n = c->model.n_layers;
    if (!types || types->kind == JSON_NULL)
        return OK;
    if (types->kind != JSON_LIST || types->n != n)
        FAIL(ERR_SHAPE, "%s: layer_types is not a list of num_hidden_layers, %lld", path,
             (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const Json *t = &types->at[i];
        bool slides = t->kind == JSON_TEXT && strcmp(t->text, "sliding_attention") == 0;
        if (slides != (c->layers[i].reach > 0))
            FAIL(ERR_UNSUPPORTED, "%s: layer_types[%lld] is \"%.80s\", but sliding_window "
                 "gives that layer %s window", path, (long long)i,
                 t->kind == JSON_TEXT ? t->text : json_kind_name(t->kind),
                 slides ? "no" : "a");
    }
    return OK;
}

/* The model's own code takes this rank whatever the file says. */
static Status read_rank(Config *c, const Json *root, const char *path)
{
    const Json *v = json_member(root, "mamba_dt_rank");
    c->model.rank = (c->model.hidden + 15) / 16;
    if (!v || v->kind == JSON_NULL || (v->kind == JSON_TEXT && strcmp(v->text, "auto") == 0) ||
        (v->kind == JSON_NUMBER && v->whole && v->integer == c->model.rank))
        return OK;
    FAIL(ERR_UNSUPPORTED, "%s: mamba_dt_rank is neither \"auto\" nor hidden_size / 16, %lld",
         path, (long long)c->model.rank);
}

/* Switches that the model's own code does not read. */
static Status fit_biases(const ConfigKeys *k, const char *path)
{
    TRY(fit_refuse(k->mamba_proj_bias, path, "mamba_proj_bias", "true is not supported"));
    TRY(fit_refuse(!k->mamba_conv_bias, path, "mamba_conv_bias", "false is not supported"));
    TRY(fit_refuse(k->mlp_bias, path, "mlp_bias", "true is not supported"));
    return fit_refuse(k->head_bias, path, "lm_head_bias", "true is not supported");
}

static Status fit_phi4flash(Config *c, Arena *a, const Json *root, const char *path)
{
    const ConfigKeys *k = &c->keys;
    (void)a;
    TRY(fit_biases(k, path));
    if (k->mamba_step != 2 || k->num_hidden_layers % 4)
        FAIL(ERR_UNSUPPORTED, "%s: mb_per_layer is %lld with %lld layers, expected 2 with a "
             "multiple of 4", path, (long long)k->mamba_step, (long long)k->num_hidden_layers);
    c->model.head_norm_eps = 1e-5;
    c->model.inner = k->expand * k->hidden_size;
    c->model.n_states = k->d_state;
    c->model.n_taps = k->d_conv;
    TRY(read_rank(c, root, path));
    map_layers(c);
    TRY(read_windows(c, root, path));
    return check_types(c, root, path);
}

static const Arch ROWS[] = {
    {
        .architecture = "Phi4FlashForCausalLM",
        .model_type = "phi4flash",
        .pairing = PAIR_NEXT,
        .layer_norm = true,
        .defaults = {.hidden_act = "silu", .norm_weight = true, .norm_bias = true,
                     .final_norm = true, .qkv_bias = true, .attention_bias = true,
                     .mamba_conv_bias = true, .num_key_value_heads = 4,
                     .tie_word_embeddings = true, .mamba_step = 2, .d_state = 16, .d_conv = 4,
                     .expand = 2, .max_position_embeddings = 4096, .norm_eps = 1e-5,
                     .bos_token_id = 1, .eos_token_id = 2},
        KEYS(PHI4FLASH_KEYS),
        .fit = fit_phi4flash,
        RULES(PHI4FLASH_RULES),
    },
};

const ArchFamily ARCH_PHI4FLASH = FAMILY(ROWS);
