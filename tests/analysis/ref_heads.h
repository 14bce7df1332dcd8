/* ref_heads.h - a checkpoint with grouped heads, written out as one without. */
#ifndef DQ_REF_HEADS_H
#define DQ_REF_HEADS_H

#include "kernels/status.h"

/* from: folder with config.json and model.safetensors, N heads and K key-value
 * heads. Makes the folder `to` with the same model, but K = N: each key-value head
 * repeated N / K times, which is what grouping means. */
MUST_USE Status heads_write_out(const char *from, const char *to);

#endif
