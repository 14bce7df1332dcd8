/* rest.h - what a layer has beside its matrices: norms, lambda, PolyNorm, Mamba's vectors. */
#ifndef DQ_REST_H
#define DQ_REST_H

#include "analysis/model/source.h"

/* Weights and biases of the norm before attention (0) or the MLP (1), [C] each, on the host;
 * w NULL: all 1, b NULL: all 0. */
typedef struct {
    const float *w, *b;
} NormValues;

/* out in the backend's memory, of config's kind. */
MUST_USE Status rest_norm(Norm *out, Backend *be, const Config *c, NormValues values);
/* The two norms as the checkpoint has them. Layers whose halves share one get it twice. */
MUST_USE Status rest_norms(Layer *out, Backend *be, Arena *scratch, const Source *s,
                           int64_t layer);
/* The norm before the head; has_norm false where the model has none. */
MUST_USE Status rest_last_norm(Norm *out, bool *has_norm, Backend *be, Arena *scratch,
                               const Source *s);
/* All else but lambda. */
MUST_USE Status rest_load(Layer *out, Backend *be, Arena *scratch, const Source *s,
                          int64_t layer);

#endif
