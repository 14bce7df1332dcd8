/* probe.h - what a forward pass records, and the pass itself.
 * A Probe holds the records of all layers; {0} records nothing. */
#ifndef DQ_PROBE_H
#define DQ_PROBE_H

#include "analysis/model.h"
#include "analysis/series.h"

/* Taps of values: the layer's output and the inputs of its linear layers
 * (q, k and v share one input, gate and up another). */
typedef enum { TAP_HIDDEN, TAP_QKV_IN, TAP_O_IN, TAP_MLP_IN, TAP_DOWN_IN, N_TAPS } Tap;

typedef struct {
    LogitRecord *logits;                   // [L] or NULL
    ShareRecord *shares;                   // [L,H] or NULL
    ValueRecord *values[N_TAPS];           // [L] each, or NULL
    /* For tests: called with each layer's output [T,C], and may be NULL. */
    Status     (*on_hidden)(void *context, int64_t layer, const Tensor *x);
    void        *on_hidden_context;
    MapWindow   *window;                   // filled in layer window_layer
    int64_t      window_layer;
    const Span  *spans;                    // [n_sequences of the batch] or NULL
    const uint8_t *share_rows;             // [T of the batch] rows of shares (record.h)
} Probe;

MUST_USE Status probe_init(Probe *p, Arena *a, const Model *m, int64_t n_positions);

/* Keys and values of one sequence, for generation. A pass that rounds keys and values
 * rounds those of the cache, once: all passes with one cache have the same RunQuant.kv.
 * While passes end at multiples of KV_GROUP, and in steps within the group after them, a
 * cache gives what one pass over the same text gives. Where a group has filled over several
 * passes it does not: those before the last saw its tokens unrounded, and a pass over the
 * whole text sees them rounded. */
typedef struct Cache Cache;
MUST_USE Status cache_init(Cache **c, Model *m, Arena *a, int64_t capacity);

/* Hidden states after the final norm, out [T,C] in the backend's memory (made
 * by the caller). ids[T] for the batch. positions start at 0 in each sequence
 * (at the cache's length with a cache, which takes one sequence). */
MUST_USE Status model_forward(Model *m, Tensor *out, const int32_t *ids, const Batch *batch,
                              RunQuant quant, Probe *probe, Cache *cache);

/* Sequences that have rows in common. Sequence s has the rows batch.start[s] ..
 * batch.start[s + 1] and attends to rows key_rows[key_start[s]] .. key_rows[key_start[s + 1]]
 * of the batch, in that order; its own come last. Positions count from the first key. */
typedef struct {
    Batch          batch;
    const int32_t *key_start;   // [n_sequences + 1]
    const int32_t *key_rows;    // [key_start[n_sequences]]
} Branches;

/* As model_forward, and row for row what that gives for each sequence with all its keys'
 * rows before it. CHECKs model_can_branch. */
MUST_USE Status model_forward_branches(Model *m, Tensor *out, const int32_t *ids,
                                       const Branches *branches, RunQuant quant);
/* Does nothing of a row depend on rows after it: no rounding, no angle? */
bool model_can_branch(const Model *m, RunQuant quant);

/* Adds the probe's figures to the set: DESIGN section 4; names in README. */
MUST_USE Status probe_series(const Probe *p, const Model *m, SeriesSet *set);

#endif
