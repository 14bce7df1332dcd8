/* packed_join.h - the tensors that make a few-bit matrix, joined to one tensor
 * "<module>.weight" with its Packed: after it, a checkpoint looks like any other. */
#ifndef DQ_PACKED_JOIN_H
#define DQ_PACKED_JOIN_H

#include "analysis/model/checkpoint.h"
#include "analysis/model/packed.h"
#include "analysis/model/quant_config.h"

/* Replaces c's table. folder and config (path of the file that q is from) are for
 * messages. ERR_FORMAT for parts that are missing or that q does not tell of; ERR_SHAPE
 * and ERR_UNSUPPORTED for their shapes and dtypes. */
MUST_USE Status packed_join(Checkpoint *c, Arena *a, const QuantConfig *q, const char *folder,
                            const char *config);

/* --- between packed_join.c and the readers of the formats --- */

typedef struct {
    const Checkpoint  *checkpoint;  // its table is the old one
    const QuantConfig *q;
    const char        *folder, *config;
    Arena             *arena;
    QuantMatcher       matcher;
    bool              *used;        // [checkpoint->n] part of a matrix, or of no use
} Join;

/* "<module><suffix>", marked as used; NULL in *out where there is none. */
MUST_USE Status join_part(const ModelTensor **out, Join *j, const char *module,
                          const char *suffix);
/* The same; ERR_FORMAT where there is none. of: the tensor that needs it. */
MUST_USE Status join_needed(const ModelTensor **out, Join *j, const char *module,
                            const char *suffix, const ModelTensor *of);
/* ERR_UNSUPPORTED, ERR_SHAPE. */
MUST_USE Status join_dtype(const Join *j, const ModelTensor *t, Dtype dtype);
MUST_USE Status join_float(const Join *j, const ModelTensor *t);
MUST_USE Status join_shape(const Join *j, const ModelTensor *t, Tensor shape);
/* t, I32 of any shape, becomes p's index, unless it says k / group for every k, or has
 * unused (a sign of its own that it is not in use) anywhere. ERR_SHAPE where it is not
 * [K]; ERR_RANGE for a group that is not there. */
MUST_USE Status join_index(Packed *p, const Join *j, const ModelTensor *t, int32_t unused);

/* t is the tensor of a matrix's codes and module what its name begins with; p is zeroed
 * and gets all but data, codes and bytes. (packed_compressed.c, packed_gptq.c) */
MUST_USE Status packed_compressed(Packed *p, Join *j, const ModelTensor *t,
                                  const char *module);
MUST_USE Status packed_gptq(Packed *p, Join *j, const ModelTensor *t, const char *module);

#endif
