/* forward_mix.h - the first half of a layer: what mixes its positions (Mixer). */
#ifndef DQ_FORWARD_MIX_H
#define DQ_FORWARD_MIX_H

#include "analysis/model/forward.h"

/* The buffers that the model's mixers need. */
MUST_USE Status mix_buffers(Pass *p);
/* p->o, the input of W_O, from p->n. */
MUST_USE Status mix_positions(Pass *p, int64_t layer);
/* Where it leaves that. */
Tensor *mix_output(Pass *p, int64_t layer);

#endif
