/* kquant.h - chooses the numbers of GGUF's block formats (kernels/blocks.h): the
 * rules of formats.md 4.4, to the byte what ggml writes when it is built without
 * contraction to FMA. Owns nothing; rows are independent, the caller shares them out. */
#ifndef DQ_KQUANT_H
#define DQ_KQUANT_H

#include <stddef.h>

#include "kernels/blocks.h"

/* Bytes of n weights; n % items == 0. */
size_t kquant_bytes(BlockType type, int64_t n);

/* One whole row of n finite weights, n % items == 0, into kquant_bytes(type, n) bytes; without
 * importance any number of rows, one after another. importance [n] >= 0, how much an error of
 * each column counts (mean of its squared inputs), or NULL. A weight too large for the f16 of
 * a block gives an infinite scale. */
void kquant_encode(void *blocks, BlockType type, const float *row, const float *importance,
                   int64_t n);

#endif
