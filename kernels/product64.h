/* product64.h - products of doubles in this machine's own memory, for factorizations
 * on the host: where a condition number of 1e6 would eat the digits of f32.
 * One call, one thread; callers cut their matrices. Owns nothing. */
#ifndef DQ_PRODUCT64_H
#define DQ_PRODUCT64_H

#include <stdint.h>

enum { PRODUCT64_COLS = 16 };

/* c [m,16] -= a [m,k] b [k,16]; rows of c and a are ldc and lda apart, b is dense.
 * c overlaps neither a nor b. Each number is one chain over k in order, so that rows
 * may be cut anywhere. NaN goes through. */
void product64_subtract(double *c, int64_t ldc, const double *a, int64_t lda, int64_t m,
                        const double *b, int64_t k);

#endif
