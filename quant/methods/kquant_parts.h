/* kquant_parts.h - encoders of one block each, private to the kquant files. */
#ifndef DQ_KQUANT_PARTS_H
#define DQ_KQUANT_PARTS_H

#include "kernels/blocks.h"

/* What a block needs to know of its row. */
typedef struct {
    const float *importance;  // of the block's weights, or NULL
    float        mean2;       // mean of the whole row's squares; with importance only
} KquantRow;

void kquant_q4_0(void *block, const float *x, const KquantRow *row);
void kquant_q4_1(void *block, const float *x, const KquantRow *row);
void kquant_q5_0(void *block, const float *x, const KquantRow *row);
void kquant_q5_1(void *block, const float *x, const KquantRow *row);
void kquant_q8_0(void *block, const float *x, const KquantRow *row);
void kquant_q4_k(void *block, const float *x, const KquantRow *row);
void kquant_q5_k(void *block, const float *x, const KquantRow *row);
void kquant_q6_k(void *block, const float *x, const KquantRow *row);

#endif
