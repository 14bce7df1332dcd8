/* diffllama.h - tensors of microsoft/unilm's differential attention under the names and in
 * the order of transformers' DiffLlama (architectures.md 2):
 *
 *   q, k    heads 0, 2, 4 ... of all, then 1, 3, 5 ...; within a head rows 0, 2, 4 ..., then
 *           1, 3, 5 ..., since RoPE turns neighbours there and halves here
 *   v       heads of width d in the order of q and k; rows as they are
 *   o       columns times subln.weight, of which DiffLlama has none
 *
 * All else stays. Rows and columns only move, so but for o nothing is rounded. */
#ifndef DQ_DIFFLLAMA_H
#define DQ_DIFFLLAMA_H

#include "analysis/layers.h"
#include "quant/formats/shards.h"

typedef enum { MOVE_NONE, MOVE_HEADS, MOVE_HEADS_AND_ROWS, MOVE_SCALED } Move;

/* One tensor of the new checkpoint. */
typedef struct {
    const ModelTensor *from;
    const ModelTensor *scale;   // MOVE_SCALED: subln.weight
    const char        *name;    // in the new checkpoint
    Move               move;
} Moved;

/* Fills out[info.n_tensors], in their order; *n how many. ERR_MEMORY. */
MUST_USE Status diffllama_list(Moved *out, int64_t *n, Arena *a, const Layers *l);
/* Are all weights of subln 1? Then o is as it was. ERR_RANGE names one that is not finite. */
MUST_USE Status diffllama_unscaled(bool *out, Arena *scratch, Layers *l);
/* Writes one of them, piece by piece, as the dtype that s has for it. ERR_RANGE names a
 * number that is not finite there. */
MUST_USE Status diffllama_write(Shards *s, Arena *scratch, Layers *l, const Moved *m);

#endif
