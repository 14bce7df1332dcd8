/* hadamard.h - the fast Walsh-Hadamard transform, in double. */
#ifndef DQ_HADAMARD_H
#define DQ_HADAMARD_H

#include <stdint.h>

/* x [n, inner], n a power of two: x becomes H x / sqrt(n) along the first dim, H the
 * Hadamard matrix of Sylvester. Symmetric and its own inverse. */
void hadamard_transform(double *x, int64_t n, int64_t inner);

#endif
