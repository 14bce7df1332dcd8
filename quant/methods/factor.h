/* factor.h - the triangular factor of an inverse, which GPTQ walks along.
 * All in double: at a condition number of 1e6 a factor in f32 is off by 4e-4, enough
 * to change codes. Runs on the host (product64.h); owns nothing. */
#ifndef DQ_FACTOR_H
#define DQ_FACTOR_H

#include "kernels/arena.h"

/* Rows of a matrix [K,K] lie so many doubles apart. */
int64_t factor_stride(int64_t K);

/* h [K, factor_stride(K)] symmetric and positive definite, of which the diagonal and
 * what is right of it are read, becomes U upper triangular with a positive diagonal,
 * H^-1 = U^T U. What is left of the diagonal and past column K ends up as anything.
 * ERR_RANGE where a column is, within rounding, a sum of others, or NaN; h is then
 * spoilt. Bits do not depend on the number of threads. Scratch: 96 K doubles. */
MUST_USE Status factor_inverse(double *h, int64_t K, Arena *scratch, int n_threads);

#endif
