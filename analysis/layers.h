/* layers.h - a checkpoint whose layers are taken one at a time: for work that
 * changes weights, and for models of which not all fits in memory.
 * Weights come as f32 in the checkpoint's own order of rows. */
#ifndef DQ_LAYERS_H
#define DQ_LAYERS_H

#include "analysis/model.h"

typedef struct {
    const char *name;        // "model.layers.0.self_attn.q_proj.weight"; NULL: there is none
    int64_t     n, k;
    bool        transposed;  // in the file; w is not
    bool        float_only;  // never quantized: lambda_proj of DIFF V2
    float      *w;           // [N,K]
    const char *bias_name;   // NULL: it has none
    float      *bias;        // [N] or NULL
} LayerMatrix;

typedef struct {
    int64_t     number;
    LayerMatrix at[N_WEIGHTS];
    const char *norm_name[2];       // of attention, of the MLP; NULL: of no weights, or the
    float      *norm[2];            //   second is the first. [C]
    const char *norm_bias_name[2];  // of LayerNorms
    float      *norm_bias[2];       // [C] or NULL
    const char *head_norm_name;     // of what a head puts out; NULL: of no weights
    float      *head_norm;          // [dv] or NULL
} LayerWeights;

typedef struct LayerSource LayerSource;

/* An open checkpoint. */
typedef struct {
    ModelInfo    info;
    LayerSource *source;
} Layers;

/* Fails like model_info_open; looks at no weights. */
MUST_USE Status layers_open(Layers *l, Arena *a, const char *path);
/* Zeroed or closed twice is fine. Close before the arena. */
void layers_close(Layers *l);

/* Shapes and names of a layer; w, bias and norm are NULL. */
void layers_describe(LayerWeights *out, const Layers *l, int64_t layer);
/* All of a layer into a; ERR_RANGE names a NaN or infinity. The file's pages are
 * given back as they have been read: they do not stay in memory. */
MUST_USE Status layers_read(LayerWeights *out, Arena *a, Layers *l, int64_t layer);
/* One tensor, any of info.tensors, into out: all of its numbers. */
MUST_USE Status layers_read_tensor(float *out, Layers *l, const ModelTensor *t);
/* Its rows first .. first + n only; plain tensors of two dims. */
MUST_USE Status layers_read_rows(float *out, Layers *l, const ModelTensor *t, int64_t first,
                                 int64_t n);
/* The same of one or two dims in the calling thread alone, for work whose threads take a few
 * rows each; the file's pages are expected before and given back after by the other two. */
MUST_USE Status layers_take_rows(float *out, Layers *l, const ModelTensor *t, int64_t first,
                                 int64_t n);
void layers_expect_rows(const ModelTensor *t, int64_t first, int64_t n);
void layers_release_rows(const ModelTensor *t, int64_t first, int64_t n);
/* The embedding, the final norm (NULL: none); the head, NULL where it is tied. */
const ModelTensor *layers_embed(const Layers *l);
const ModelTensor *layers_norm(const Layers *l);
const ModelTensor *layers_head(const Layers *l);
/* What the head's tensor is called, or would be, were it not tied: "lm_head.weight". */
const char *layers_head_name(const Layers *l);
/* What names of tensors but the head's begin with, though files may leave it out; or NULL. */
const char *layers_prefix(const Layers *l);
/* Rows of v and columns of o belong together: a value has P = value_dim / head_dim parts;
 * part p of output head h is the v head (rows head * head_dim ...) returned, in the
 * checkpoint's order, and columns (h * P + p) * head_dim ... of o. */
int64_t layers_value_head(const Layers *l, int64_t h, int64_t p);
/* The first row of a kind within the checkpoint's matrix `slot`, which holds it; of kinds
 * whose rows lie in order: all but q, k and v. */
int64_t layers_first_row(const Layers *l, WeightKind kind, WeightKind slot);

/* m gets config, names, embedding and final norm, an empty table of layers and no
 * head: enough to run layer by layer (calibrate.h). l stays open as long as m. */
MUST_USE Status layers_model(Model *m, Arena *a, Backend *be, Layers *l, Dtype dtype);
/* The layer's weights, packed in canonical order, into m->layers[w->number] and the
 * backend's memory: until the caller rewinds that. Matrices and norms whose w is NULL
 * are passed over: what was placed for them stays. */
MUST_USE Status layers_place(Model *m, const Layers *l, const LayerWeights *w);

#endif
