/* kquant_parts.h - encoders of a few blocks, private to the kquant files. */
#ifndef DQ_KQUANT_PARTS_H
#define DQ_KQUANT_PARTS_H

#include "kernels/blocks.h"

/* What blocks need to know of their row. */
typedef struct {
    const float *importance;  // of the blocks' weights, or NULL
    float        mean2;       // mean of the whole row's squares; with importance only
} KquantRow;

/* Small blocks: n of them, at most KQUANT_LANES. */
void kquant_q4_0(void *blocks, const float *x, const KquantRow *row, int n);
void kquant_q4_1(void *blocks, const float *x, const KquantRow *row, int n);
void kquant_q5_0(void *blocks, const float *x, const KquantRow *row, int n);
void kquant_q5_1(void *blocks, const float *x, const KquantRow *row, int n);
void kquant_q8_0(void *blocks, const float *x, const KquantRow *row, int n);
/* Large ones: n is 1. */
void kquant_q4_k(void *block, const float *x, const KquantRow *row, int n);
void kquant_q5_k(void *block, const float *x, const KquantRow *row, int n);
void kquant_q6_k(void *block, const float *x, const KquantRow *row, int n);

#endif
