/* fold.h - scales that move from where an input is made into the columns that read it:
 * x / s times W diag(s) is x times W. */
#ifndef DQ_FOLD_H
#define DQ_FOLD_H

#include "analysis/calibrate.h"

/* Is there a norm `norm` of its own, with weights: 0 (before attention) or 1 (before the
 * MLP)? Halves that share one have it as 0. */
bool fold_has_norm(const LayerWeights *w, int norm);
/* Matrices that are there and read it; their number. */
int fold_readers(const LayerWeights *w, int norm, WeightKind kinds[N_WEIGHTS]);

/* Nudges s [n] so that norm / s has 8 significant bits, and norm / (norm / s) is s: then
 * the norm that a checkpoint of bf16 or f16 stores divides by exactly what the columns
 * are multiplied with. 1 where the norm is 0. */
void fold_exact(float *s, const float *norm, int64_t n);

/* Norm / s and, where it has one, bias / s, s from fold_exact. [n] */
void fold_norm(LayerWeights *w, int norm, const float *s, int64_t n);
/* Rows of m and its bias divided by s; columns of m times s. */
void fold_rows(LayerMatrix *m, const float *s);
void fold_columns(LayerMatrix *m, const float *s);
/* What was gathered of x becomes that of x / s. */
void fold_inputs(InputStats *in, const float *s);

#endif
