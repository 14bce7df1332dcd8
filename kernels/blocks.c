/* blocks.c - the block formats of GGUF taken apart.
 * A type is a row of TYPES: its facts, and the function that turns one block into
 * codes, scales and offsets. Decoding goes the same way, a block at a time in
 * registers and L1, so that both give the same bits.
 * w = scale * code + offset, rounded twice as in ggml: the products of a scale of
 *     f16, one of 6 or 8 bits and a code fit f32, only the sum is rounded (so FMA would
 *     change nothing)
 * cost    0.25 ns a weight on one core, Q5_0 and Q5_1 0.8
 * NaN     an f16 scale of NaN or infinity gives what IEEE says
 * test    tests/kernels/test_blocks.c against a reading bit by bit, and ggml's numbers */
#include "kernels/blocks.h"

#include <string.h>
#include <strings.h>

#include "kernels/half.h"

enum { MOST_GROUPS = 16 };

static inline void nibbles(int8_t *low, int8_t *high, const uint8_t *q, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        low[i] = (int8_t)(q[i] & 15);
        high[i] = (int8_t)(q[i] >> 4);
    }
}

/* Adds bit i of high as bit 4 of code i. */
static inline void fifth_bits(int8_t *codes, uint32_t high)
{
    for (int i = 0; i < BLOCK_SMALL; i++)
        codes[i] = (int8_t)(codes[i] | (int8_t)(high >> i & 1) << 4);
}

static inline void lower(int8_t *codes, int64_t n, int by)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = (int8_t)(codes[i] - by);
}

static void open_q4_0(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ4_0 *b = block;
    (void)offsets;
    nibbles(codes, codes + 16, b->q, 16);
    lower(codes, BLOCK_SMALL, 8);
    scales[0] = f16_to_f32(b->d);
}

static void open_q4_1(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ4_1 *b = block;
    nibbles(codes, codes + 16, b->q, 16);
    scales[0] = f16_to_f32(b->d);
    offsets[0] = f16_to_f32(b->m);
}

static void open_q5_0(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ5_0 *b = block;
    (void)offsets;
    nibbles(codes, codes + 16, b->q, 16);
    fifth_bits(codes, b->high);
    lower(codes, BLOCK_SMALL, 16);
    scales[0] = f16_to_f32(b->d);
}

static void open_q5_1(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ5_1 *b = block;
    nibbles(codes, codes + 16, b->q, 16);
    fifth_bits(codes, b->high);
    scales[0] = f16_to_f32(b->d);
    offsets[0] = f16_to_f32(b->m);
}

static void open_q8_0(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ8_0 *b = block;
    (void)offsets;
    memcpy(codes, b->q, BLOCK_SMALL);
    scales[0] = f16_to_f32(b->d);
}

/* p: scales 0-3 in the low 6 bits of bytes 0-3, mins 0-3 in those of 4-7; of 4-7 the
 * low 4 bits in bytes 8-11, the high 2 on top of bytes 0-3 (scales) and 4-7 (mins). */
static void k_scales(float *scales, float *offsets, const uint8_t *p, uint16_t d, uint16_t dmin)
{
    float scale = f16_to_f32(d), min = f16_to_f32(dmin);
    for (int j = 0; j < 4; j++) {
        scales[j] = scale * (float)(p[j] & 63);
        offsets[j] = -(min * (float)(p[j + 4] & 63));
        scales[j + 4] = scale * (float)((p[j + 8] & 15) | p[j] >> 6 << 4);
        offsets[j + 4] = -(min * (float)(p[j + 8] >> 4 | p[j + 4] >> 6 << 4));
    }
}

static void open_q4_k(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ4_K *b = block;
    k_scales(scales, offsets, b->scales, b->d, b->dmin);
    for (int i = 0; i < 4; i++)
        nibbles(codes + 64 * i, codes + 64 * i + 32, b->q + 32 * i, 32);
}

static void open_q5_k(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ5_K *b = block;
    k_scales(scales, offsets, b->scales, b->d, b->dmin);
    for (int i = 0; i < 4; i++)
        nibbles(codes + 64 * i, codes + 64 * i + 32, b->q + 32 * i, 32);
    for (int g = 0; g < 8; g++)
        for (int l = 0; l < 32; l++)
            codes[32 * g + l] = (int8_t)(codes[32 * g + l] | (b->high[l] >> g & 1) << 4);
}

static void open_q6_k(int8_t *codes, float *scales, float *offsets, const void *block)
{
    const BlockQ6_K *b = block;
    float            d = f16_to_f32(b->d);
    (void)offsets;
    for (int half = 0; half < 2; half++) {
        int8_t *c = codes + 128 * half;
        nibbles(c, c + 64, b->low + 64 * half, 64);
        for (int k = 0; k < 4; k++)
            for (int l = 0; l < 32; l++) {
                int top = b->high[32 * half + l] >> 2 * k & 3;
                c[32 * k + l] = (int8_t)((c[32 * k + l] | top << 4) - 32);
            }
    }
    for (int g = 0; g < 16; g++)
        scales[g] = d * (float)b->scales[g];
}

static const struct {
    BlockInfo info;
    void (*open)(int8_t *codes, float *scales, float *offsets, const void *block);
} TYPES[N_BLOCKS] = {
    [BLOCK_Q4_0] = {{"Q4_0", 2, BLOCK_SMALL, sizeof(BlockQ4_0), 4, 32, false}, open_q4_0},
    [BLOCK_Q4_1] = {{"Q4_1", 3, BLOCK_SMALL, sizeof(BlockQ4_1), 6, 32, true}, open_q4_1},
    [BLOCK_Q5_0] = {{"Q5_0", 6, BLOCK_SMALL, sizeof(BlockQ5_0), 6, 32, false}, open_q5_0},
    [BLOCK_Q5_1] = {{"Q5_1", 7, BLOCK_SMALL, sizeof(BlockQ5_1), 6, 32, true}, open_q5_1},
    [BLOCK_Q8_0] = {{"Q8_0", 8, BLOCK_SMALL, sizeof(BlockQ8_0), 8, 32, false}, open_q8_0},
    [BLOCK_Q4_K] = {{"Q4_K", 12, BLOCK_LARGE, sizeof(BlockQ4_K), 6, 32, true}, open_q4_k},
    [BLOCK_Q5_K] = {{"Q5_K", 13, BLOCK_LARGE, sizeof(BlockQ5_K), 6, 32, true}, open_q5_k},
    [BLOCK_Q6_K] = {{"Q6_K", 14, BLOCK_LARGE, sizeof(BlockQ6_K), 6, 16, false}, open_q6_k},
};

const BlockInfo *block_info(BlockType type)
{
    CHECK(type >= 0 && type < N_BLOCKS);
    return &TYPES[type].info;
}

Status block_by_name(BlockType *out, const char *name)
{
    for (int t = 0; t < N_BLOCKS; t++)
        if (strcasecmp(name, TYPES[t].info.name) == 0) {
            *out = (BlockType)t;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "block format \"%s\": known are Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, "
         "Q5_K, Q6_K", name);
}

Status block_by_id(BlockType *out, int id)
{
    for (int t = 0; t < N_BLOCKS; t++)
        if (TYPES[t].info.id == id) {
            *out = (BlockType)t;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "block format number %d of ggml: known are 2 (Q4_0), 3 (Q4_1), "
         "6 (Q5_0), 7 (Q5_1), 8 (Q8_0), 12 (Q4_K), 13 (Q5_K), 14 (Q6_K)", id);
}

/* The group size is a constant where this is inlined: vectors. */
static inline void decode_groups(float *out, const int8_t *codes, const float *scales,
                                 const float *offsets, int64_t n_groups, int group)
{
    for (int64_t g = 0; g < n_groups; g++)
        for (int i = 0; i < group; i++) {
            float w = scales[g] * (float)codes[g * group + i];
            out[g * group + i] = offsets ? w + offsets[g] : w;
        }
}

void block_decode(float *out, BlockType type, const void *blocks, int64_t n)
{
    const BlockInfo *info = block_info(type);
    const uint8_t   *at = blocks;
    CHECK(n % info->items == 0);
    for (int64_t i = 0; i < n; i += info->items, at += info->bytes) {
        int8_t codes[BLOCK_LARGE];
        float  scales[MOST_GROUPS], offsets[MOST_GROUPS];
        TYPES[type].open(codes, scales, offsets, at);
        if (info->group == 16)
            decode_groups(out + i, codes, scales, NULL, info->items / 16, 16);
        else if (info->offsets)
            decode_groups(out + i, codes, scales, offsets, info->items / 32, 32);
        else
            decode_groups(out + i, codes, scales, NULL, info->items / 32, 32);
    }
}

void block_codes(int8_t *codes, float *scales, float *offsets, BlockType type,
                 const void *blocks, int64_t n)
{
    const BlockInfo *info = block_info(type);
    const uint8_t   *at = blocks;
    const int        groups = info->items / info->group;
    CHECK(n % info->items == 0);
    for (int64_t i = 0; i < n; i += info->items, at += info->bytes) {
        TYPES[type].open(codes + i, scales, offsets, at);
        scales += groups;
        if (info->offsets)
            offsets += groups;
    }
}
