/* source.h - a checkpoint folder whose tensors have been matched with the rules
 * of its architecture: each is there, of the right shape and dtype, and none is
 * left over. The weights themselves have not been looked at. */
#ifndef DQ_SOURCE_H
#define DQ_SOURCE_H

#include "analysis/model/checkpoint.h"
#include "analysis/model/config.h"

enum { SOURCE_NAME = 160 };   // room for a tensor's name as a rule makes it

typedef struct {
    const char         *path;        // of the folder or GGUF file, as given but for LAYOUT@
    const char         *folder;      // of the files, for messages
    const char         *described;   // where sizes come from: "config.json"
    const char         *layout;      // what stood in for config.json, in words; or NULL
    Config              config;
    Checkpoint         *checkpoint;  // in the arena
    const ModelTensor **of_layers;   // [n_layers,N_LAYER_ROLES], NULL where there is none
    const ModelTensor  *of_model[N_ROLES - N_LAYER_ROLES];
    const TensorRule   *by_head[N_LAYER_ROLES];     // one tensor for each head, or NULL
    bool               *seen;        // [checkpoint->n] asked for
    ModelTensor        *used;        // [n_used] what the model uses, by name
    int64_t             n_used;
} Source;

/* Fails like model_load. Close it before the arena. */
MUST_USE Status source_open(Source *s, Arena *a, const char *path);
void            source_close(Source *s);

/* NULL where the model has no such tensor; layer counts for roles of layers only. */
const ModelTensor *source_tensor(const Source *s, int64_t layer, TensorRole role);

/* That of one head, where each has its own; NULL past the last. */
const ModelTensor *source_head_tensor(const Source *s, int64_t layer, TensorRole role,
                                      int64_t head);

/* All of t as f32 into out, all finite. ERR_RANGE names the first NaN or
 * infinity and its place. The file's pages do not stay in memory. */
MUST_USE Status source_read(float *out, const Source *s, const ModelTensor *t);
/* Its rows first .. first + n only; tensors of two dims. */
MUST_USE Status source_read_rows(float *out, const Source *s, const ModelTensor *t,
                                 int64_t first, int64_t n);
/* The same of one or two dims in the calling thread alone, for work whose threads take a few
 * rows each; the file's pages are expected before and given back after by the other two. */
MUST_USE Status source_take_rows(float *out, const Source *s, const ModelTensor *t,
                                 int64_t first, int64_t n);
void source_expect_rows(const ModelTensor *t, int64_t first, int64_t n);
void source_release_rows(const ModelTensor *t, int64_t first, int64_t n);

/* Around rows that are read in pieces, of one tensor: what must be known of it first is checked
 * (scales of few bits), and the file's pages are expected; then they are given back. */
MUST_USE Status source_begin(const Source *s, const ModelTensor *t);
void source_end(const ModelTensor *t);

/* A matrix as the products take it, [outputs, inputs], however it is stored: its shape, and
 * all of it. */
Tensor source_matrix_shape(const ModelTensor *t);
MUST_USE Status source_read_matrix(float *out, Arena *scratch, const Source *s,
                                   const ModelTensor *t);

/* All of t as codes in a, rows in the checkpoint's order. codes is NULL where t is
 * plain or of groups that the products do not take: then source_read. Fails like it. */
MUST_USE Status source_codes(Codes *out, Arena *a, const Source *s, const ModelTensor *t);

/* lambda of a layer of a differential model, from its four vectors. ERR_RANGE
 * where it is not finite. */
double source_lambda_init(const Source *s, int64_t layer);
MUST_USE Status source_lambda(double *out, Arena *scratch, const Source *s, int64_t layer);

#endif
