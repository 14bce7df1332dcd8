/* codes.h - a weight matrix as small whole numbers with scales: what every
 * low-bit format unpacks to, and what the products on packed weights take.
 *   w[n, order[k]] = scale[n,g] * code[n,k] + offset[n,g],   g = k / group
 * Owns nothing. */
#ifndef DQ_CODES_H
#define DQ_CODES_H

#include <float.h>
#include <stdint.h>

#include "kernels/status.h"

/* Codes and zero points differ by less than 512: up to here all products are finite. */
#define CODES_MOST_SCALE (FLT_MAX / 512)

typedef struct {
    int64_t        n, k;      // outputs N, inputs K
    int            bits;      // 4, 6 or 8: codes in [-2^(bits-1), 2^(bits-1) - 1]
    int64_t        group;     // weights of a row that share a scale; divides K
    const int8_t  *codes;     // [N,K]
    const float   *scales;    // [N, K/group]
    const float   *offsets;   // [N, K/group], or NULL: zeros
    const int32_t *order;     // [K] a permutation: input of column k; NULL: k itself
} Codes;

/* Rows first .. first + n as f32 into w [n,K], columns in the order of the
 * inputs. One multiplication and one addition, rounded each: exact where the
 * scale has few bits, as f16 and bf16 scales and the block formats do. */
void codes_decode(float *w, const Codes *c, int64_t first, int64_t n);

#endif
