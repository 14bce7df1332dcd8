/* rotate.h - a model in turned coordinates: the same function, weights without
 * outlier channels.
 *
 * R1 [C,C] turns the hidden state: embedding and all matrices that read it (q, k, v,
 * lambda_proj, gate, up, head) times R1, all that add to it (o, down, their biases) R1^T
 * times. RMSNorms commute with a rotation once their weights have moved into what reads
 * them; LayerNorms, which subtract a mean, do not.
 * R2 [d * n_parts] turns each wide value head, between v and o: attention weights mix
 * tokens, not channels, and the norm of a differential head spans the wide head; its
 * weights, where it has any, move into o's columns: so both commute with R2. The v heads
 * that make a wide head need not be neighbours (valuemap.h): turning v heads one by one, in
 * their own order, breaks that. */
#ifndef DQ_ROTATE_H
#define DQ_ROTATE_H

#include "quant/methods/rotation.h"
#include "quant/methods/valuemap.h"

/* Seed of a layer's R2. */
uint64_t rotate_seed(uint64_t seed, int64_t layer);

/* Why the layers cannot be turned, as words for a sentence; NULL: they can. */
const char *rotate_refusal(const Layers *l);

/* All of a layer's weights: norms become 1. r2 NULL: none; it needs map->paired.
 * Scratch is given back; ERR_MEMORY leaves w as it was. */
MUST_USE Status rotate_layer(LayerWeights *w, const ValueMap *map, const Rotation *r1,
                             const Rotation *r2, Arena *scratch);

/* Rows of the embedding, and of the head with the final norm [C] folded in (which then
 * becomes 1): tied ones are no longer equal, so the checkpoint needs both. */
MUST_USE Status rotate_embed(float *rows, int64_t n, const Rotation *r1, Arena *scratch);
MUST_USE Status rotate_head(float *rows, int64_t n, const float *norm, const Rotation *r1,
                            Arena *scratch);

#endif
