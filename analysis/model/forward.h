/* forward.h - the forward pass in its parts: a layer alone, on hidden states that the
 * caller has, as far as one of its taps. */
#ifndef DQ_FORWARD_H
#define DQ_FORWARD_H

#include "analysis/probe.h"

/* One batch on its way through a model. The caller sets the first six; the rest,
 * T rows each, is made by forward_open in the backend's memory. */
typedef struct {
    Model       *m;
    const Batch *batch;
    Probe       *probe;          // or NULL
    RunQuant     quant;
    Cache       *cache;          // or NULL
    const Branches *branches;    // or NULL: no sequence has rows of another
    int64_t      T;
    int32_t     *place;          // [T] position of each row in its sequence
    int32_t     *angle_row;      // [T] its row of cs and sn
    int32_t      key_start[2];   // with a cache: 0 and its new length
    Tensor       cs, sn;         // [P, rotary dims / 2]
    Tensor       x, n, y;        // [T,C] residual stream; a half's input, and what it adds
    Tensor       q, k, v, heads; // [T, heads * width]
    Tensor       keys, values;   // with branches: rows of k and v in the order of key_rows
    Tensor       lambda;         // [T,H] where it is of each token
    Tensor       u, z, memory;   // [T,E] Mamba; the memory stays for the layers after it
    Tensor       rank, bc;       // [T,R], [T,2N]
    Tensor       o;              // what W_O takes: heads, or z
    Tensor       gate, up;       // [T,F]
} Pass;

/* Memory of the backend, until the caller rewinds it; x is not set, or, where it has data, it
 * is the caller's. */
MUST_USE Status forward_open(Pass *p);
/* p->x = the input of the first layer. */
MUST_USE Status forward_embed(Pass *p, const int32_t *ids);
/* p->x, the input of the layer, becomes its output where tap is TAP_HIDDEN. Else the
 * layer is run up to that tap, and no weights of what follows are looked at.
 * *at: what passes the tap, until the pass goes on. */
MUST_USE Status forward_layer(Pass *p, int64_t layer, Tap tap, const Tensor **at);
/* The same from a tap on: p->x is as it was when the layer was run that far. What passed it is
 * to be in forward_passed, where `from` is TAP_O_IN or TAP_DOWN_IN; after TAP_MLP_IN, which
 * only a layer whose halves are not parallel can go on from, p->x tells all, as at the
 * layer's begin, TAP_HIDDEN. tap does not come before `from`. */
MUST_USE Status forward_from(Pass *p, int64_t layer, Tap from, Tap tap, const Tensor **at);
/* What passes TAP_O_IN or TAP_DOWN_IN of that layer; before that, where it will be. */
Tensor *forward_passed(Pass *p, int64_t layer, Tap tap);

/* --- memory --- */

/* Bytes of the buffers of a pass over T rows that stand for themselves. */
size_t  forward_bytes(const ModelConfig *c, int64_t T);
/* Most rows that so many bytes do for. */
int64_t forward_rows(const ModelConfig *c, size_t bytes);
/* Does a layer read anything but hidden states of layers before it? */
bool    forward_carries(const ModelConfig *c);

#endif
