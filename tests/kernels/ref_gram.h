/* ref_gram.h - gram matrices in double. */
#ifndef DQ_REF_GRAM_H
#define DQ_REF_GRAM_H

#include "kernels/backend.h"

typedef struct {
    Arena   arena;
    int64_t T, K;
    Tensor  x;        // [T,K] on the host, one channel large and one always 0
    double *start;    // [K,K] before
} RefGram;

/* Close the arena when done. */
void ref_gram_open(RefGram *c, int64_t T, int64_t K, uint64_t seed);
/* x becomes what bf16 holds of it: to be done after op_gram and before ref_gram_agrees. */
void ref_gram_round(RefGram *c);
/* Is `got` what op_gram shall make of `start`, on and right of the diagonal? Of a large one,
 * some of its numbers are looked at. Each within twice what a plain float loop over parts of
 * GRAM_PART rows loses, taken over all that are looked at, as a share of sqrt(G_ii G_jj). */
bool ref_gram_agrees(const RefGram *c, const double *got);

#endif
