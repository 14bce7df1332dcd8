/* blocks.h - the block formats of GGUF, to be read: layouts of formats.md 4.4
 * (ggml). A row of a matrix is a run of blocks of 32 or 256 weights. Encoding,
 * which chooses the numbers, is quant/methods/kquant.h. */
#ifndef DQ_BLOCKS_H
#define DQ_BLOCKS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/codes.h"

typedef enum {
    BLOCK_Q4_0, BLOCK_Q4_1, BLOCK_Q5_0, BLOCK_Q5_1, BLOCK_Q8_0, BLOCK_Q4_K, BLOCK_Q5_K,
    BLOCK_Q6_K, N_BLOCKS
} BlockType;

/* Codes of the types with offsets are ggml's unsigned q as it is, so that 4 bits of
 * these need 6, and 5 bits do: moving 0..15 to -8..7 would put 8 * scale into the
 * offset, a sum that f32 cannot always hold, and change the last bit of some weights. */
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

/* --- what lies in the file; d, m and dmin are f16 --- */

enum { BLOCK_SMALL = 32, BLOCK_LARGE = 256 };

typedef struct __attribute__((packed)) {
    uint16_t d;             // w = d * (q - 8)
    uint8_t  q[16];         // low nibble weight j, high nibble j + 16
} BlockQ4_0;

typedef struct __attribute__((packed)) {
    uint16_t d, m;          // w = d * q + m
    uint8_t  q[16];
} BlockQ4_1;

typedef struct __attribute__((packed)) {
    uint16_t d;             // w = d * (q - 16)
    uint32_t high;          // bit j: bit 4 of q of weight j
    uint8_t  q[16];
} BlockQ5_0;

typedef struct __attribute__((packed)) {
    uint16_t d, m;          // w = d * q + m
    uint32_t high;
    uint8_t  q[16];
} BlockQ5_1;

typedef struct __attribute__((packed)) {
    uint16_t d;             // w = d * q
    int8_t   q[32];
} BlockQ8_0;

/* Eight groups of 32: w = d * scale * q - dmin * min, scale and min of 6 bits. */
typedef struct __attribute__((packed)) {
    uint16_t d, dmin;
    uint8_t  scales[12];    // eight scales and eight mins of 6 bits: blocks.c
    uint8_t  q[128];        // 32 bytes for 64 weights: low nibble l, high nibble l + 32
} BlockQ4_K;

typedef struct __attribute__((packed)) {
    uint16_t d, dmin;
    uint8_t  scales[12];
    uint8_t  high[32];      // byte l: bit g is bit 4 of weight l of group g
    uint8_t  q[128];
} BlockQ5_K;

/* Sixteen groups of 16: w = d * scale * (q - 32). */
typedef struct __attribute__((packed)) {
    uint8_t  low[128];      // 64 bytes for 128 weights: low nibble l, high nibble l + 64
    uint8_t  high[64];      // 32 bytes for 128 weights: bits 2k, 2k + 1 of l + 32 k
    int8_t   scales[16];
    uint16_t d;
} BlockQ6_K;

static_assert(sizeof(BlockQ4_0) == 18, "a file format");
static_assert(sizeof(BlockQ4_1) == 20, "a file format");
static_assert(sizeof(BlockQ5_0) == 22, "a file format");
static_assert(sizeof(BlockQ5_1) == 24, "a file format");
static_assert(sizeof(BlockQ8_0) == 34, "a file format");
static_assert(sizeof(BlockQ4_K) == 144, "a file format");
static_assert(sizeof(BlockQ5_K) == 176, "a file format");
static_assert(sizeof(BlockQ6_K) == 210, "a file format");

#endif
