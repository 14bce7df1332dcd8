/* blocks.h - the block formats of GGUF, to be read: layouts of formats.md 4.4
 * (ggml). A row of a matrix is a run of blocks of 32 or 256 weights. Encoding,
 * which chooses the numbers, is quant/methods/kquant.h. */
#ifndef DQ_BLOCKS_H
#define DQ_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/codes.h"

typedef enum {
    BLOCK_Q4_0, BLOCK_Q4_1, BLOCK_Q5_0, BLOCK_Q5_1, BLOCK_Q8_0, BLOCK_Q4_K, BLOCK_Q5_K,
    BLOCK_Q6_K, N_BLOCKS
} BlockType;

typedef struct {
    const char *name;     // "Q4_K"
    int         id;       // ggml's number of the type
    int         items;    // weights of a block: 32 or 256
    int         bytes;    // of a block
    int         bits;     // that Codes of it need: 4, 6 or 8
    int         group;    // weights that share scale and offset: 16 or 32
    bool        offsets;  // has offsets
} BlockInfo;

const BlockInfo *block_info(BlockType type);
/* ERR_UNSUPPORTED for a name ("Q4_K", any case) or a number of ggml that is none of these. */
MUST_USE Status block_by_name(BlockType *out, const char *name);
MUST_USE Status block_by_id(BlockType *out, int id);

/* n weights, n % items == 0, as f32: the bits that ggml's own functions give. */
void block_decode(float *out, BlockType type, const void *blocks, int64_t n);
/* The same as codes [n], scales and offsets [n/group] (offsets only where the type
 * has them): Codes that decode to the same bits. */
void block_codes(int8_t *codes, float *scales, float *offsets, BlockType type,
                 const void *blocks, int64_t n);

#endif
