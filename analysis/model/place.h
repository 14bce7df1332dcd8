/* place.h - a matrix as the checkpoint has it, into the forms that the products take: the
 * rows of each kind that it holds, in canonical order (rows.h), packed for the backend. */
#ifndef DQ_PLACE_H
#define DQ_PLACE_H

#include "analysis/model/source.h"

/* Where matrices go, and room for one of q, k and v whose rows change places. */
typedef struct {
    const Config *config;
    Backend      *backend;
    Dtype         dtype;    // of the products
    float        *matrix;   // NULL where all rows lie in order
    float        *bias;
} Place;

/* Room comes from a and is of use as long as that. */
MUST_USE Status place_init(Place *p, Arena *a, const Config *c, Backend *be, Dtype dtype);

/* w [N,K] f32 and bias [N] or NULL, on the host, rows as in the checkpoint's matrix `slot`.
 * All kinds that it holds go into layer, which may have more rows: a key-value head that two
 * maps share is there for each of them. The bias of W_SSM_DT belongs to the scan. */
MUST_USE Status place_matrix(Place *p, Layer *layer, WeightKind slot, const Tensor *w,
                             const float *bias);

/* The same of a matrix of codes, which stay codes. Room for other orders comes from a. */
MUST_USE Status place_codes(Place *p, Arena *a, Layer *layer, WeightKind slot, const Codes *c,
                            const float *bias);

/* A tensor of f32 of that shape into the backend as it stands. */
MUST_USE Status place_tensor(Backend *be, Tensor *out, const Tensor *shape, const float *w);

#endif
