/* place.h - a matrix as the checkpoint has it, into the forms that the products take: the
 * rows of each kind that it holds, in canonical order (rows.h), packed for the backend. */
#ifndef DQ_PLACE_H
#define DQ_PLACE_H

#include "analysis/model/source.h"

/* Where matrices go. */
typedef struct {
    const Config *config;
    Backend      *backend;
    Dtype         dtype;    // of the products
    Arena        *scratch;  // room for what changes its order, given back at once
} Place;

/* w [N,K] f32 and bias [N] or NULL, on the host, rows as in the checkpoint's matrix `slot`.
 * All kinds that it holds go into layer, which may have more rows: a key-value head that two
 * maps share is there for each of them. The bias of W_SSM_DT belongs to the scan. */
MUST_USE Status place_matrix(Place *p, Layer *layer, WeightKind slot, const Tensor *w,
                             const float *bias);

/* The same of a matrix of codes, which stay codes. */
MUST_USE Status place_codes(Place *p, Layer *layer, WeightKind slot, const Codes *c,
                            const float *bias);

/* The same of t, which is stored as the products take it (not transposed): its rows are read
 * as they are packed, and there is never a copy of all of them. */
MUST_USE Status place_stored(Place *p, Layer *layer, WeightKind slot, const Source *s,
                             const ModelTensor *t, const float *bias);

/* The same of a t of few bits, on a backend that measures: what its codes would take. */
MUST_USE Status place_measured(Place *p, Layer *layer, WeightKind slot, const ModelTensor *t,
                               const float *bias);

/* A tensor of f32 of that shape into the backend as it stands. */
MUST_USE Status place_tensor(Backend *be, Tensor *out, const Tensor *shape, const float *w);

#endif
