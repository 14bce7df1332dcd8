/* archs.h - what the tables of architectures are written with. */
#ifndef DQ_ARCHS_H
#define DQ_ARCHS_H

#include "analysis/model/config.h"

/* --- keys of config.json --- */

/* Upper ends: beyond any model, yet no product of three overflows int64. */
#define KEY_COUNT(name, field, required, min, max) \
    {name, KEY_INT, required, offsetof(ConfigKeys, field), min, max}
#define KEY_NUMBER(name, field, min, max) \
    {name, KEY_REAL, false, offsetof(ConfigKeys, field), min, max}
#define KEY_FLAG(name, field) {name, KEY_BOOL, false, offsetof(ConfigKeys, field), 0, 0}
#define KEY_WORD(name, field) {name, KEY_TEXT, false, offsetof(ConfigKeys, field), 0, 0}

#define KEY_VOCAB KEY_COUNT("vocab_size", vocab_size, true, 1, 1 << 24)
#define KEY_HIDDEN(name) KEY_COUNT(name, hidden_size, true, 1, 1 << 20)
#define KEY_INTER(name, required) KEY_COUNT(name, intermediate_size, required, 1, 1 << 22)
#define KEY_LAYERS(name) KEY_COUNT(name, num_hidden_layers, true, 1, 1 << 14)
#define KEY_HEADS(name) KEY_COUNT(name, num_attention_heads, true, 1, 1 << 14)
#define KEY_KV_HEADS KEY_COUNT("num_key_value_heads", num_key_value_heads, false, 1, 1 << 14)
#define KEY_HEAD_DIM KEY_COUNT("head_dim", head_dim, false, 2, 1 << 14)
#define KEY_CONTEXT(name) KEY_COUNT(name, max_position_embeddings, false, 1, 1 << 30)
#define KEY_BOS KEY_COUNT("bos_token_id", bos_token_id, false, -1, INT32_MAX)
#define KEY_EPS(name) KEY_NUMBER(name, norm_eps, 0, 1)
#define KEY_ACT(name) KEY_WORD(name, hidden_act)
#define KEY_TIED KEY_FLAG("tie_word_embeddings", tie_word_embeddings)
#define KEY_THETA(name) KEY_NUMBER(name, rope_theta, 2, 1e15)
#define KEY_ROTARY KEY_NUMBER("partial_rotary_factor", rotary, 1e-6, 1)
#define KEY_WINDOW KEY_COUNT("sliding_window", sliding_window, false, 0, 1 << 30)

/* What most of them share; heads of keys and values are another matter. */
#define KEYS_SIZES                                                               \
    KEY_VOCAB, KEY_HIDDEN("hidden_size"), KEY_INTER("intermediate_size", true),  \
        KEY_LAYERS("num_hidden_layers"), KEY_HEADS("num_attention_heads"),       \
        KEY_CONTEXT("max_position_embeddings"), KEY_BOS, KEY_ACT("hidden_act"),  \
        KEY_TIED, KEY_THETA("rope_theta")

/* A row's tables. */
#define KEYS(table) .keys = table, .n_keys = (int)(sizeof(table) / sizeof *(table))
#define RULES(table) .rules = table, .n_rules = (int)(sizeof(table) / sizeof *(table))
#define FAMILY(table) {table, (int)(sizeof(table) / sizeof *(table))}

/* --- rules of tensors --- */

#define MATRIX_ON(name, kind, rows, cols, on) \
    {name, (TensorRole)(ROLE_WEIGHT + (kind)), WHEN_ALWAYS, rows, cols, on, false}
#define MATRIX(name, kind, rows, cols) MATRIX_ON(name, kind, rows, cols, 0)
#define BIAS_ON(name, kind, when, rows, on) \
    {name, (TensorRole)(ROLE_BIAS + (kind)), when, rows, DIM_NONE, on, false}
#define BIAS(name, kind, when, rows) BIAS_ON(name, kind, when, rows, 0)
#define VECTOR_ON(name, role, when, rows, on) {name, role, when, rows, DIM_NONE, on, false}
#define VECTOR_WHEN(name, role, when, rows) VECTOR_ON(name, role, when, rows, 0)
#define VECTOR(name, role, rows) VECTOR_WHEN(name, role, WHEN_ALWAYS, rows)
#define TABLE(name, role, when, rows, cols) {name, role, when, rows, cols, 0, false}
#define EMBEDDING(name) TABLE(name, ROLE_EMBED, WHEN_ALWAYS, DIM_VOCAB, DIM_HIDDEN)
#define HEAD(name) TABLE(name, ROLE_HEAD, WHEN_UNTIED, DIM_VOCAB, DIM_HIDDEN)
/* Weight and bias of a LayerNorm, NAME.weight and NAME.bias. */
#define LAYER_NORM(name, role, w, b)                            \
    VECTOR_WHEN(name ".weight", role, w, DIM_HIDDEN),           \
        VECTOR_WHEN(name ".bias", role##_BIAS, b, DIM_HIDDEN)

/* The matrices of a Llama's layer, but for the output's. */
#define RULES_LLAMA_LAYER(attn, mlp)                                   \
    MATRIX(attn "q_proj.weight", W_Q, DIM_Q, DIM_HIDDEN),              \
        MATRIX(attn "k_proj.weight", W_K, DIM_KV, DIM_HIDDEN),         \
        MATRIX(attn "v_proj.weight", W_V, DIM_KV, DIM_HIDDEN),         \
        MATRIX(mlp "gate_proj.weight", W_GATE, DIM_INTER, DIM_HIDDEN), \
        MATRIX(mlp "up_proj.weight", W_UP, DIM_INTER, DIM_HIDDEN),     \
        MATRIX(mlp "down_proj.weight", W_DOWN, DIM_HIDDEN, DIM_INTER)
/* Biases of q, k and v. */
#define RULES_QKV_BIAS(attn, when)                        \
    BIAS(attn "q_proj.bias", W_Q, when, DIM_Q),           \
        BIAS(attn "k_proj.bias", W_K, when, DIM_KV),      \
        BIAS(attn "v_proj.bias", W_V, when, DIM_KV)
#define RULES_LAMBDA(prefix)                                   \
    VECTOR(prefix "lambda_q1", ROLE_LAMBDA_Q1, DIM_HEAD),      \
        VECTOR(prefix "lambda_k1", ROLE_LAMBDA_K1, DIM_HEAD),  \
        VECTOR(prefix "lambda_q2", ROLE_LAMBDA_Q2, DIM_HEAD),  \
        VECTOR(prefix "lambda_k2", ROLE_LAMBDA_K2, DIM_HEAD)

/* --- for fit --- */

/* Windows of keys: layer_types where the file has it, else sliding_window, which in Qwen's
 * models counts from layer max_window_layers on, and only with use_sliding_window. */
MUST_USE Status fit_windows(Config *c, Arena *a, const Json *root, const char *path);
/* ERR_UNSUPPORTED where a flag of config.json is not what is built. */
MUST_USE Status fit_refuse(bool is_so, const char *path, const char *key, const char *why);

#endif
