/* model.h - a decoder-only transformer in one canonical form.
 * The loader turns every known layout into this one; no code after it asks
 * which model it is. Weights live in the memory of the backend. */
#ifndef DQ_MODEL_H
#define DQ_MODEL_H

#include "analysis/modelconfig.h"

/* The matrices of a block, in the order of the forward pass. A Layer has those before
 * N_LINEARS; a checkpoint may hold several of them as one. */
typedef enum {
    W_Q, W_K, W_V, W_O, W_GATE, W_UP, W_DOWN,
    W_SSM_U, W_SSM_Z,        // Mamba: [E,C] what is scanned, and its gate; memory unit: Z alone
    W_SSM_RANK, W_SSM_BC,    // [R,E], [2N,E]
    W_SSM_DT,                // [E,R]
    W_LAMBDA,                // [H,C] lambda of each token, before the sigmoid
    N_LINEARS,
    W_QKV = N_LINEARS,       // q, k and v
    W_GATE_UP,               // gate, then up
    W_SSM_IN,                // U, then Z
    W_SSM_X,                 // RANK, then BC
    N_WEIGHTS
} WeightKind;

typedef struct {
    Norm   norm_attn, norm_mlp;   // width C
    Norm   q_norm, k_norm;        // of each head before RoPE, where the config says qk_norm
    Linear w[N_LINEARS];          // packed NULL: the layer has none of it
    Tensor head_norm;             // [dv] weights of the heads' norm; data NULL: 1
    float  lambda, lambda_init;   // differential only
    float  poly[4];               // of PolyNorm
    Tensor conv, conv_bias;       // Mamba: [E,J], [E]
    Scan   scan;
} Layer;

typedef struct Loader Loader;   // analysis/model/load.h

typedef enum { ACTS_TOKEN, ACTS_TENSOR } ActScale;

/* What is rounded, in all layers, while a pass runs. bits 16 and the rest 0: nothing.
 *
 * Inputs of linear layers are rounded once for the layers that share them; records hold
 * them as they were before. absmax of "all tokens" is that of one pass: a step of
 * generation has one token.
 *
 * Keys, after RoPE, and values are rounded in groups of KV_GROUP tokens of a sequence
 * (op_fakequant_kv); the newest tokens, short of a group, stay as they are (KIVI's
 * residual). All queries attend to the rounded ones, those within the group too, as is
 * usual in measuring: their scales know up to KV_GROUP - 1 tokens to come, where generation
 * sees a group unrounded until it is full, and loses a little less. */
typedef struct {
    int        bits;       // attention logits: 16 none; 8, 6, 4
    LogitScale scale;
    int        acts;       // inputs of the linear layers of blocks: 0 none; 8, 6, 4
    ActScale   act_scale;  //   by the absmax of a token, or of all tokens of a sequence
    bool       act_wide;   //   codes and scales of compressed-tensors (RowRounding.wide)
    int        kv;         // keys (per channel) and values (per token): 0 none; 8, 4
} RunQuant;

typedef struct {
    const char *path;             // as given, but for LAYOUT@
    const char *name;             // last part of the path
    const char *arch;             // "DiffLlamaForCausalLM"
    const char *config_text;      // config.json as it stands
    int64_t     n_params;         // in the checkpoint, tied weights once
    size_t      n_bytes;          // of tensors in the checkpoint
    Dtype       stored;           // dtype of the checkpoint's matrices
    Dtype       dtype;            // of the products: F32 or BF16
    ModelConfig config;
    Tensor      embed;            // [V,C] f32; data NULL: its rows are read from the file
    Tensor      positions;        // [n_positions,C] f32, where they are learned
    Norm        norm;             // before the head
    bool        has_norm;
    Linear      head;             // [V,C]
    Layer      *layers;
    RunQuant    run;              // what the checkpoint asks a pass to round: inputs of W8A8
    Backend    *backend;
    Loader     *loader;           // the open checkpoint, where the model reads on from it; or NULL
    bool        streamed;         // layers and head are packed as a pass comes to them, and go
                                  //   with its memory: layers[i] and head are empty between
} Model;

/* Called for every quantizable matrix before it is packed: may change w [N,K]
 * (rows in the checkpoint's order), f32, all finite. name is the checkpoint's. */
typedef Status (*WeightEdit)(void *context, const char *name, float *w, int64_t N, int64_t K);

typedef struct {
    Dtype      dtype;             // F32 or BF16
    WeightEdit edit;              // NULL: none
    void      *edit_context;
    bool       stream;            // hold only weights at work: every batch of a pass reads them
                                  //   again, layer by layer. edit sees a matrix each time
} ModelOptions;

/* Loads a Hugging Face folder or a GGUF file; "unilm@FOLDER" where there is no config.json
 * (analysis/model/layout.h). Text and tables go to a, weights to be. Errors name the file
 * and the tensor or key, what was expected and what came. NaN and infinities among the weights
 * are found here, or, where they are streamed, as they are read. */
MUST_USE Status model_load(Model *m, Arena *a, Backend *be, const char *path,
                           const ModelOptions *options);
/* Makes m->head ready to be used until the backend is rewound, where it is streamed. */
MUST_USE Status model_head(Model *m);
/* Closes the checkpoint; before the arena and the backend. Zeroed or twice is fine. */
void            model_close(Model *m);
/* What model_load takes for path where layout ("unilm:theta=500000") is that of all models
 * that need one: layout@path for a folder without a config.json and without a layout of its
 * own, else path. ERR_USAGE for a layout that is none. */
MUST_USE Status model_with_layout(const char **out, Arena *a, const char *path,
                                  const char *layout);

/* What a pass over m rounds: what is asked, and inputs as the checkpoint says where nothing
 * is asked of them. */
RunQuant model_run(const Model *m, RunQuant asked);

/* --- without weights: for inspect --- */

/* How a tensor of few bits lies in its file (analysis/model/packed.h). */
typedef struct Packed Packed;

typedef struct {
    const char   *name;    // in the checkpoint; of a packed one "<module>.weight"
    const char   *file;    // shard's file name
    Tensor        view;    // mapped: data valid while the ModelInfo is open, maybe unaligned
    const Packed *packed;  // NULL: plain numbers. Else view has the matrix's shape [N,K], the
                           //   dtype it is meant to be decoded to, and no data
    bool          quantizable;
    bool          linear;      // of a linear layer: what is quantizable, and some beside
    bool          transposed;  // stored as [inputs, outputs], as GPT-2 has its matrices
} ModelTensor;

/* Bytes it takes in its files, scales and zero points included. */
size_t      model_tensor_bytes(const ModelTensor *t);
/* "BF16", "4-bit g64", "6-bit channel asym", "Q4_K": into text[MODEL_FORMAT], which it
 * returns. */
enum { MODEL_FORMAT = 32 };
const char *model_tensor_format(const ModelTensor *t, char *text);

typedef struct Checkpoint Checkpoint;

typedef struct {
    const char  *path, *name, *arch, *config_text;  // as in Model
    const char  *pairing;        // in words: which heads make a differential head
    const char  *layout;         // in words: what stood in for config.json; NULL: nothing
    const char  *quantization;   // in words: what wrote weights of few bits; NULL: none
    RunQuant     run;            // as in Model
    ModelConfig  config;
    int64_t      n_tensors;
    ModelTensor *tensors;        // [n_tensors] that the model uses, by name
    const double *lambda, *lambda_init;  // [n_layers], NULL for plain attention
    int64_t      n_params, n_quantizable;  // numbers in them; of these, quantizable
    size_t       n_bytes;        // of tensors in the checkpoint
    int64_t      n_files;
    Dtype        stored;         // dtype of most numbers
    Checkpoint  *checkpoint;     // the mapped files
} ModelInfo;

/* Reads config and tensor tables and checks all names, shapes and dtypes, but
 * not the weights (lambda vectors apart). Fails like model_load. */
MUST_USE Status model_info_open(ModelInfo *info, Arena *a, const char *path);
/* Unmaps the files; what lies in the arena stays. Zeroed or twice is fine. */
void model_info_close(ModelInfo *info);

/* cs, sn [n_positions, dims/2] f32 with the attention factor in them, in the
 * steps and the precision of transformers. sequence: length in use, for dynamic
 * and longrope. ERR_RANGE where the config's numbers give no finite tables. */
MUST_USE Status rope_tables(const Rope *r, int64_t max_positions, int64_t sequence,
                            int64_t n_positions, float *cs, float *sn);
/* Of such tables the rows of positions first .. first + n. */
MUST_USE Status rope_rows(const Rope *r, int64_t max_positions, int64_t sequence, int64_t first,
                          int64_t n, float *cs, float *sn);

/* exp(q1.k1) - exp(q2.k2) + lambda_init, dot products in double, [d] each. */
double diff_lambda(const float *q1, const float *k1, const float *q2, const float *k2,
                   int64_t d, double lambda_init);
/* 0.8 - 0.6 exp(-0.3 depth) */
double diff_lambda_init(int64_t depth);

#endif
