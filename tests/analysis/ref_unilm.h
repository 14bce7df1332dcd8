/* ref_unilm.h - random weights as microsoft/unilm's code keeps them, without a config. */
#ifndef DQ_REF_UNILM_H
#define DQ_REF_UNILM_H

#include "tests/analysis/ref_checkpoint.h"

#define UNILM_ATTN "model.layers.0.self_attn."

/* form 1: heads and kv_heads count half-heads, of width d. form 2: kv_heads those of keys
 * and values, heads twice the heads that come out. m's sizes are set. */
void ref_unilm_fill(RefModel *m, int form, const char *dtype);
/* As ref_model_write, and takes config.json away again. */
void ref_unilm_write(const RefModel *m, const char *folder, int shards);
/* Drawn, filled, written to the test's own folder `name` and freed; returns its path. */
const char *ref_unilm(const char *name, int form, bool tied, const char *dtype, int shards);

#endif
