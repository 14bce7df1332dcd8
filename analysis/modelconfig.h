/* modelconfig.h - the sizes and kinds of a decoder-only transformer in canonical form: what
 * every layout of every architecture is turned into (architectures.md 1). */
#ifndef DQ_MODELCONFIG_H
#define DQ_MODELCONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"

typedef enum { ROPE_DEFAULT, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_YARN, ROPE_LLAMA3,
               ROPE_LONGROPE, N_ROPES } RopeKind;

/* architectures.md 8.1; fields a kind does not use are 0. */
typedef struct {
    RopeKind kind;
    double   theta;
    double   factor;
    double   attention_factor;        // 0: not given
    double   beta_fast, beta_slow;    // yarn
    double   low_freq_factor, high_freq_factor;   // llama3
    int64_t  original_max_positions;  // 0: not given
    bool     truncate;                // yarn: floor and ceil of the ramp's ends
    double   mscale, mscale_all_dim;  // yarn: 0 not given
    int64_t  dims;                    // rotary dims of a head, even; 0: no RoPE
    const double *short_factor, *long_factor;     // longrope, [dims/2]
} Rope;

/* What mixes the positions of a layer. */
typedef enum {
    MIX_ATTENTION,  // queries, keys and values of its own
    MIX_CROSS,      // queries of its own, keys and values of another layer
    MIX_MAMBA,      // Mamba-1
    MIX_MEMORY,     // gated memory unit: gates what the last Mamba layer before it scanned
    N_MIXERS
} Mixer;

typedef struct {
    Mixer   mixer;
    int64_t reach;      // keys that a query sees, itself among them; 0: all before it
    double  scale;      // of the logits, beside 1 / sqrt(d): 1, mostly
    int64_t keys_of;    // layer whose keys and values it reads: its own number, mostly
} LayerConfig;

/* How the halves of a layer come together; N: its norms. */
typedef enum {
    RESIDUAL_PRE,       // x += attention(N1 x), then x += mlp(N2 x)
    RESIDUAL_PARALLEL,  // x += attention(N1 x) + mlp(N2 x)
    RESIDUAL_POST       // x = N1(x + attention(x)), then x = N2(x + mlp(x))
} Residual;

typedef struct {
    int64_t    n_layers;
    int64_t    hidden;        // C
    int64_t    inter;         // F
    int64_t    vocab;         // V
    int64_t    n_heads;       // H output heads
    int64_t    n_groups;      // G key-value groups; H % G == 0
    int64_t    n_maps;        // M: 1 plain, 2 differential
    int64_t    n_signals;     // heads that share a noise map (Attention.n_signals), mostly 1
    bool       shared_keys;   // both maps of a head look at the same keys
    int64_t    head_dim;      // d, of q and k
    int64_t    value_dim;     // dv, of v and of an output head
    int64_t    max_positions;
    int64_t    n_positions;   // rows of the table of learned positions; 0: there is none
    int64_t    first_position;  // the row of position 0
    Residual   residual;
    double     norm_eps;
    bool       centred;       // LayerNorm; else RMSNorm
    bool       qk_norm;       // each head of q and k is normed before RoPE
    double     head_norm_eps; // of what a head puts out; < 0: no norm
    bool       lambda_rows;   // lambda is computed from each token (DIFF V2)
    Activation act;
    bool       gated;         // MLP: act(gate) * up; else act(up)
    bool       poly;          // PolyNorm in place of act
    bool       tied;
    Rope       rope;
    int64_t    inner, n_states, rank, n_taps;  // Mamba: E, N, R, rows of the convolution
    const LayerConfig *layers;                 // [n_layers]; NULL: attention in all
    int32_t    bos, eos;      // -1: none
    int64_t    n_stops;       // tokens that end a text; eos is the first of them
    const int32_t *stops;     // [n_stops]
} ModelConfig;

int64_t model_query_heads(const ModelConfig *c);  // rows of q: H * M, fewer with shared noise
int64_t model_key_heads(const ModelConfig *c);    // rows of k: G * M, or G
int64_t model_query_width(const ModelConfig *c);  // query heads * d
int64_t model_key_width(const ModelConfig *c);    // key heads * d
int64_t model_value_width(const ModelConfig *c);  // G * dv
int64_t model_out_width(const ModelConfig *c);    // H * dv
/* Does it have attention logits? */
bool    model_attends(const ModelConfig *c, int64_t layer);

#endif
