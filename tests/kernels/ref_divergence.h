/* ref_divergence.h - two heads side by side, what op_divergence shall say of them in double,
 * and the checks that it has to pass on every backend. */
#ifndef DQ_REF_DIVERGENCE_H
#define DQ_REF_DIVERGENCE_H

#include "kernels/backend.h"

/* Of the model and of its reference. */
typedef struct {
    Arena    arena;
    Backend  be;
    Tensor   x[2];       // of be
    float   *host_x[2], *w[2], *bias[2];
    Linear   head[2];
    int32_t *targets;
    double  *logits[2];  // [T,V]
    double   loss[2];    // of a plain float loop
    HeadPair pair;       // kl has one more, NaN, that is nobody's
} RefPair;

/* On a backend of that name. */
Status ref_pair_open(RefPair *c, const char *backend, int n_threads, int64_t T, int64_t V,
                     const int64_t K[2], const Dtype dtype[2]);
void   ref_pair_close(RefPair *c);
/* Opens one of two rows of these logits [V], runs it. */
Status ref_pair_by_hand(RefPair *c, const char *backend, int64_t V, const float *a,
                        const float *b);

/* Checks (tests/check.h). */
void ref_pair_size(const char *backend, int64_t T, int64_t V, const int64_t K[2],
                   const Dtype dtype[2]);
void ref_pair_small(const char *backend);
void ref_pair_equal(const char *backend);
void ref_pair_not_negative(const char *backend, int V, int shifts);
void ref_pair_moving_maximum(const char *backend);
void ref_pair_first_of_equal(const char *backend);
void ref_pair_impossible_words(const char *backend);
void ref_pair_nan_and_infinity(const char *backend);
void ref_pair_no_rows(const char *backend);
/* It makes at least so many allocations, and any may fail. */
void ref_pair_survives(const char *backend, int n_threads, int least);

#endif
