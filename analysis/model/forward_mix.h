/* forward_mix.h - parts of forward.c that are files of their own. */
#ifndef DQ_FORWARD_MIX_H
#define DQ_FORWARD_MIX_H

#include "analysis/model/forward.h"

/* The first half of a layer, what mixes its positions (Mixer): p->o, the input of W_O, from
 * p->n. */
MUST_USE Status mix_positions(Pass *p, int64_t layer);
/* Where it leaves that. */
Tensor *mix_output(Pass *p, int64_t layer);

/* Tensors for p->T rows. */
MUST_USE Status forward_buffers(Pass *p);

/* out = the last layer's output, of a model whose weights are streamed and that carries
 * nothing (forward_carries); p has neither cache nor branches. */
MUST_USE Status forward_streamed(Pass *p, Tensor *out, const int32_t *ids);

#endif
