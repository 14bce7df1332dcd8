/* ref_score.h - a last layer, what op_score shall say of it in double, and checks that it has
 * to pass on every backend. */
#ifndef DQ_REF_SCORE_H
#define DQ_REF_SCORE_H

#include "kernels/backend.h"

typedef struct {
    Arena    arena;
    Backend  be;
    int64_t  T, V;
    Tensor   x;        // of be
    float   *host_x, *w, *bias;
    Linear   head;
    int32_t *targets, *best;
    float   *logprob;  // between guards
    double  *logits;   // [T,V]
    double   loss;     // of a plain float loop
} RefScore;

/* On a backend of that name. */
Status ref_score_open(RefScore *c, const char *backend, int n_threads, int64_t T, int64_t V,
                      int64_t K, Dtype dtype);
void   ref_score_close(RefScore *c);
/* Opens one whose two rows of logits are these [V], target 0: K = 1 and x = 1. */
Status ref_score_by_hand(RefScore *c, const char *backend, int64_t V, const float *logits);

/* Checks (tests/check.h): c's logprob and best against its logits; words by hand. */
void ref_score_check(const RefScore *c);
void ref_score_first_of_equal(const char *backend);
void ref_score_nan_and_infinity(const char *backend);
void ref_score_large(const char *backend);
/* Any failed allocation. */
void ref_score_survives(const char *backend, int n_threads, Dtype dtype);

#endif
