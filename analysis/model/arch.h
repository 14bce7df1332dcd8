/* arch.h - the table of architectures: what each one calls its tensors, how
 * its heads pair up, what its config.json leaves out. A new model is a row
 * here; what no row needs has no field yet. */
#ifndef DQ_ARCH_H
#define DQ_ARCH_H

#include "analysis/model.h"

/* config.json as it stands; 0 in a count: follows from the others. */
typedef struct {
    int64_t     vocab_size, hidden_size, intermediate_size, num_hidden_layers;
    int64_t     num_attention_heads, num_key_value_heads, head_dim;
    int64_t     max_position_embeddings, bos_token_id, eos_token_id;
    double      rms_norm_eps;
    const char *hidden_act;
    bool        tie_word_embeddings, attention_bias, mlp_bias;
} ConfigKeys;

typedef enum {
    PAIR_NONE,   // softmax attention
    PAIR_HALVES  // q heads i and i + N/2, v heads j and j + K/2 (architectures.md 4.3)
} HeadPairing;

/* What a tensor is for. The first N_WEIGHTS are the WeightKinds, their biases
 * follow in the same order. */
typedef enum {
    ROLE_WEIGHT = 0,
    ROLE_BIAS = N_WEIGHTS,
    ROLE_NORM_ATTN = 2 * N_WEIGHTS,
    ROLE_NORM_MLP,
    ROLE_LAMBDA_Q1, ROLE_LAMBDA_K1, ROLE_LAMBDA_Q2, ROLE_LAMBDA_K2,
    N_LAYER_ROLES,
    ROLE_EMBED = N_LAYER_ROLES,  // from here on: once a model
    ROLE_NORM,
    ROLE_HEAD,
    N_ROLES
} TensorRole;

typedef enum { WHEN_ALWAYS, WHEN_UNTIED, WHEN_ATTENTION_BIAS, WHEN_MLP_BIAS } TensorWhen;

/* Sizes by name: Q is N*d, KV is K*d with the config's N and K. */
typedef enum { DIM_NONE, DIM_VOCAB, DIM_HIDDEN, DIM_INTER, DIM_Q, DIM_KV, DIM_HEAD } TensorDim;

typedef struct {
    const char *name;  // '*' stands for the number of the layer
    TensorRole  role;
    TensorWhen  when;
    TensorDim   rows, cols;  // cols DIM_NONE: a vector
} TensorRule;

typedef struct {
    const char       *architecture;  // config.json's architectures[0]
    const char       *model_type;
    HeadPairing       pairing;
    bool              head_norm;  // RMS norm of each head's output, no weight, rms_norm_eps
    bool              mlp_bias;   // config's mlp_bias counts; else it is ignored
    ConfigKeys        defaults;   // of the model's own class
    const TensorRule *rules;
    int               n_rules;
} Arch;

/* By name of the architecture, or by model_type where that is NULL. NULL: none. */
const Arch *arch_find(const char *architecture, const char *model_type);
/* "A, B" into text of ARCH_NAMES bytes, for messages; returns text. */
enum { ARCH_NAMES = 512 };
const char *arch_names(char *text);
/* Only the weights of the blocks are quantized: not embeddings, head, norms,
 * lambda vectors or biases. */
bool arch_quantizable(TensorRole role);
/* Does the checkpoint have that tensor, the config being k? */
bool arch_present(const TensorRule *rule, const ConfigKeys *k);
/* Tensors that some files carry and no one needs: rotary tables. */
bool arch_ignores(const char *name);

#endif
