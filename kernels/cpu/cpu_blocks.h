/* cpu_blocks.h - reading of the block formats for one instruction set; private to blocks.c. */
#ifndef DQ_CPU_BLOCKS_H
#define DQ_CPU_BLOCKS_H

#include "kernels/blocks.h"

typedef struct {
    /* One block; offsets only of the types that have them. */
    void (*open[N_BLOCKS])(int8_t *codes, float *scales, float *offsets, const void *block);
    void (*decode[N_BLOCKS])(float *out, const void *blocks, int64_t n_blocks);
} BlocksIsa;
extern const BlocksIsa blocks_plain, blocks_avx2, blocks_avx512;

#endif
