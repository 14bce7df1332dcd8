/* ref_codes.h - weights of codes, what they stand for, and their products in double. */
#ifndef DQ_REF_CODES_H
#define DQ_REF_CODES_H

#include "kernels/backend.h"

enum { ROW = 0 };  // a group of ROW: the whole row

typedef struct {
    int64_t N, K, group;
    int     bits;
    bool    offsets, order, bias;
} CodesShape;

typedef struct {
    Arena        arena;
    Codes        codes;
    const float *bias;  // or NULL
    float       *w;     // [N,K] decoded, between guards
    Tensor       x;     // [T,K] of normal numbers
} CodesCase;

/* All codes of the range, the ends too; scales of 24 bits, so that scale * code must be
 * rounded, of both signs. Close the arena when done. */
void ref_codes_open(CodesCase *c, CodesShape s, int64_t T);

/* Output n of one row x: bf16 rounds x and the decoded weights. Where T is 1 it multiplies
 * sums of codes: weights are never rounded. *size: sum of the magnitudes of all terms. */
double ref_codes_output(double *size, const CodesCase *c, int64_t n, const float *x,
                        Dtype dtype, int64_t T);

#endif
