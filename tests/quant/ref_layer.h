/* ref_layer.h - one decoder layer in double, from its definition: what a change of the
 * weights must leave alone. Without rotary embedding, which no change here meets. */
#ifndef DQ_REF_LAYER_H
#define DQ_REF_LAYER_H

#include "quant/methods/valuemap.h"

typedef struct {
    int64_t C, F;            // hidden, MLP
    int64_t H, M, d, K;      // output heads, maps, width, key-value heads of the checkpoint
    bool    bias, head_norm;
} RefShape;

typedef struct {
    double *w[N_WEIGHTS], *bias[N_WEIGHTS], *norm[2];  // as in LayerWeights
} RefLayer;

/* Inputs of the linear layers: [T,C], [T,H*M*d], [T,C], [T,F]. */
typedef struct {
    double *qkv, *o, *mlp, *down;
} RefTaps;

/* Normal weights, norms around 1, some channels of them large. */
void ref_layer_random(LayerWeights *w, Arena *a, const RefShape *s, uint64_t seed);
/* Pairs as HF's DiffLlama does: q heads h and h + H, v heads likewise. */
void ref_layer_map(ValueMap *map, Arena *a, const RefShape *s);
void ref_layer_widen(RefLayer *out, Arena *a, const LayerWeights *w);
/* y [T,C] from x [T,C]; taps NULL: not asked for, else filled from a. */
void ref_layer_run(double *y, RefTaps *taps, Arena *a, const RefShape *s, const RefLayer *w,
                   const double *x, int64_t T);
/* max |a - b| over max |b|; NaN when any is. */
double ref_layer_error(const double *a, const double *b, int64_t n);

#endif
