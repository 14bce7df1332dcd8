/* arch.h - the table of architectures: what each one calls its tensors, how
 * its heads pair up, what its config.json leaves out. A new model is a row
 * of one of archs/; what no row needs has no field yet. */
#ifndef DQ_ARCH_H
#define DQ_ARCH_H

#include "analysis/model.h"
#include "analysis/model/keys.h"

/* config.json as it stands, whatever a key is called there; 0 in a count: it follows from
 * the others. */
typedef struct {
    int64_t     vocab_size, hidden_size, intermediate_size, num_hidden_layers;
    int64_t     num_attention_heads, num_key_value_heads, head_dim;
    int64_t     max_position_embeddings, bos_token_id, eos_token_id;
    double      norm_eps;
    const char *hidden_act;
    double      rope_theta;
    double      rotary;              // share of a head's dims that turn; 0: no RoPE
    bool        tie_word_embeddings;
    bool        tied_by_file;        // nothing says so but whether the file has a head
    bool        attention_bias, qkv_bias, mlp_bias;   // the first is of the output alone
    bool        bias_by_file;        // qkv_bias: only whether the file has one
    bool        norm_weight, norm_bias, final_norm, norm_before, no_final_norm;
    bool        qk_norm, parallel;
    bool        learned_positions;
    int64_t     first_position;      // row of the table for position 0
    int64_t     embed_dim;           // 0: hidden_size
    int64_t     sliding_window;      // 0: none
    bool        use_sliding_window;
    int64_t     max_window_layers;
    double      head_norm_eps;
    int64_t     num_noise_heads, k_ratio;
    int64_t     d_state, d_conv, expand, mamba_step;
    bool        mamba_proj_bias, mamba_conv_bias, head_bias;
    bool        scaled, scaled_by_layer, cross_attention;
    double      top_theta, top_rotary;   // GPT-NeoX: names that its class does not read
    int64_t     num_heads;
    double      rotary_scaling_factor;
} ConfigKeys;

typedef enum {
    PAIR_NONE,   // softmax attention
    PAIR_HALVES, // q heads i and i + N/2, v heads j and j + K/2 (architectures.md 4.3)
    PAIR_NEXT,   // q heads 2i and 2i + 1, v heads 2j and 2j + 1; r signals, then their noise
    PAIR_SHARED  // q heads 2i and 2i + 1, which look at the same keys and values
} HeadPairing;

/* How q, k and v of W_QKV lie in its rows. */
typedef enum {
    QKV_STACKED,  // all of q, all of k, all of v
    QKV_BY_HEAD   // q, k and v of head 0, those of head 1, ...
} QkvOrder;

/* What a tensor is for. The first N_WEIGHTS are the WeightKinds, their biases
 * follow in the same order. */
typedef enum {
    ROLE_WEIGHT = 0,
    ROLE_BIAS = N_WEIGHTS,
    ROLE_NORM_ATTN = 2 * N_WEIGHTS, ROLE_NORM_MLP,
    ROLE_NORM_ATTN_BIAS, ROLE_NORM_MLP_BIAS,
    ROLE_Q_NORM, ROLE_K_NORM,
    ROLE_HEAD_NORM,
    ROLE_LAMBDA_Q1, ROLE_LAMBDA_K1, ROLE_LAMBDA_Q2, ROLE_LAMBDA_K2,
    ROLE_POLY, ROLE_POLY_BIAS,
    ROLE_CONV, ROLE_CONV_BIAS, ROLE_A_LOG, ROLE_SSM_D,
    N_LAYER_ROLES,
    ROLE_EMBED = N_LAYER_ROLES,  // from here on: once a model
    ROLE_POSITIONS,
    ROLE_PROJECT_IN, ROLE_PROJECT_OUT,
    ROLE_NORM, ROLE_NORM_BIAS,
    ROLE_HEAD,
    N_ROLES
} TensorRole;

/* What of the config a tensor is there for. */
typedef enum {
    WHEN_ALWAYS,
    WHEN_UNTIED,
    WHEN_ATTENTION_BIAS,   // o's bias
    WHEN_QKV_BIAS,
    WHEN_MLP_BIAS,
    WHEN_NORM_WEIGHT,
    WHEN_NORM_BIAS,
    WHEN_QK_NORM,
    WHEN_TWO_NORMS,        // not StableLM's parallel layers, whose halves share one
    WHEN_FINAL_NORM,
    WHEN_FINAL_NORM_BIAS,
    WHEN_PROJECTED         // the embedding is narrower than the hidden states
} TensorWhen;

/* Sizes by name. Q is N*d, KV is K*d with the config's N and K. */
typedef enum {
    DIM_NONE, DIM_VOCAB, DIM_HIDDEN, DIM_INTER, DIM_Q, DIM_KV, DIM_OUT, DIM_HEAD, DIM_VALUE,
    DIM_QKV, DIM_INTER2, DIM_EMBED, DIM_POSITIONS, DIM_HEADS,
    DIM_INNER, DIM_INNER2, DIM_RANK, DIM_SSM_X, DIM_STATES, DIM_TAPS, DIM_1, DIM_3
} TensorDim;

/* Layers that have the tensor, by their mixers; 0: all. */
enum { ON_SELF = 1 << MIX_ATTENTION, ON_CROSS = 1 << MIX_CROSS, ON_MAMBA = 1 << MIX_MAMBA,
       ON_MEMORY = 1 << MIX_MEMORY, ON_ATTENTION = ON_SELF | ON_CROSS };

typedef struct {
    const char *name;  // '*' stands for the number of the layer, a second one for the head's
    TensorRole  role;
    TensorWhen  when;
    TensorDim   rows, cols;  // cols DIM_NONE: a vector
    unsigned    on;          // ON_..., 0: every layer
    bool        transposed;  // stored [cols, rows]
} TensorRule;

typedef struct Config Config;

typedef struct Arch {
    const char       *architecture;  // config.json's architectures[0]
    const char       *model_type;
    const char       *old_type;      // another spelling of model_type; or NULL
    HeadPairing       pairing;
    QkvOrder          qkv;
    bool              turns_next;    // RoPE turns dims 2i and 2i + 1, not i and i + d/2
    int               lambda_shift;  // lambda_init is of depth layer + lambda_shift
    bool              layer_norm;    // norms are LayerNorms
    bool              plain_mlp;     // no gate
    bool              up_first;      // in W_GATE_UP the gate comes second
    bool              partial;       // RoPE may leave some dims of a head as they are
    const char       *prefix;        // of names, that files may leave out; or NULL
    ConfigKeys        defaults;      // of the model's own class
    const Key        *keys;          // of config.json, into ConfigKeys
    int               n_keys;
    /* Checks and settles what the row alone cannot say: layers, windows, what is refused.
     * NULL: nothing. All else of c is filled in. */
    Status          (*fit)(Config *c, Arena *a, const Json *root, const char *path);
    const TensorRule *rules;
    int               n_rules;
} Arch;

/* archs/: families of rows. */
typedef struct {
    const Arch *at;
    int         n;
} ArchFamily;
extern const ArchFamily ARCH_LLAMA, ARCH_STABLELM, ARCH_NEOX, ARCH_GPT2, ARCH_OPT, ARCH_UNILM,
    ARCH_MOTIF, ARCH_PHI4FLASH;

/* By name of the architecture, or by model_type where that is NULL. NULL: none. */
const Arch *arch_find(const char *architecture, const char *model_type);
/* Is type what a's config.json says? */
bool        arch_has_type(const Arch *a, const char *type);
/* "A, B" into text of ARCH_NAMES bytes, for messages; returns text. */
enum { ARCH_NAMES = 512 };
const char *arch_names(char *text);
/* Only the weights of the blocks are quantized: not embeddings, head, norms, lambda
 * vectors and their projection, biases, nor what Mamba has beside its matrices. */
bool arch_quantizable(TensorRole role);
/* Is it the weight of a linear layer, quantized or not? */
bool arch_linear(TensorRole role);
/* Does the checkpoint have that tensor, the config being k? */
bool arch_present(const TensorRule *rule, const ConfigKeys *k);
/* What of config.json says so, for messages: "attention_bias". */
const char *arch_reason(TensorWhen when);
/* Some files leave out the first part of all names: name without it. */
const char *arch_bare_name(const Arch *a, const char *name);
/* Tensors that some files carry and no one needs: rotary tables, causal masks. */
bool arch_ignores(const char *name);

#endif
