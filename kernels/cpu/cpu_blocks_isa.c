/* cpu_blocks_isa.c - the block formats of GGUF taken apart: as codes, and as numbers.
 * w = scale * code + offset, rounded twice as in ggml: the products of a scale of
 *     f16, one of 6 or 8 bits and a code fit f32, only the sum is rounded (so FMA would
 *     change nothing)
 * cost    0.06 to 0.35 ns a weight on one core (AVX-512)
 * NaN     an f16 scale of NaN or infinity gives what IEEE says
 * test    tests/kernels/test_blocks.c against a reading bit by bit, and ggml's numbers, with
 *         every instruction set */
#include <string.h>

#include "kernels/cpu/cpu_blocks.h"
#include "kernels/half.h"
#include "kernels/vec.h"

ALWAYS void nibbles(int8_t *low, int8_t *high, const uint8_t *q, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        low[i] = (int8_t)(q[i] & 15);
        high[i] = (int8_t)(q[i] >> 4);
    }
}

/* Adds bit i of high as bit 4 of code i. */
ALWAYS void fifth_bits(int8_t *codes, uint32_t high)
{
    for (int i = 0; i < BLOCK_SMALL; i++)
        codes[i] = (int8_t)(codes[i] | (int8_t)(high >> i & 1) << 4);
}

ALWAYS void lower(int8_t *codes, int64_t n, int by)
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
ALWAYS void k_scales(float *scales, float *offsets, const uint8_t *p, uint16_t d, uint16_t dmin)
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

/* --- decoding: blocks of 32 in vectors --- */

enum { PARTS = BLOCK_SMALL / VEC };

ALWAYS void nibbles_of(Ivec *q, const uint8_t *p)
{
    for (int i = 0; i < PARTS / 2; i++) {
        Ivec b = ivec_load_ubytes(p + i * VEC);
        q[i] = b & 15;
        q[i + PARTS / 2] = b >> 4;
    }
}

/* Adds bit i of high as bit 4 of code i. */
ALWAYS void fifth_bits_of(Ivec *q, uint32_t high)
{
    Ivec lane;
    for (int i = 0; i < VEC; i++)
        lane[i] = i;
    for (int i = 0; i < PARTS; i++)
        q[i] |= (ivec_all((int32_t)(high >> i * VEC)) >> lane & 1) << 4;
}

/* out = scale * (q - zero) + offset; no offset where there is none: -0 + 0 is 0 */
ALWAYS void put_small(float *out, const Ivec *q, int zero, uint16_t d, const uint16_t *m)
{
    Vec scale = vec_all(f16_to_f32(d)), offset = vec_all(m ? f16_to_f32(*m) : 0);
    for (int i = 0; i < PARTS; i++) {
        Vec w = scale * __builtin_convertvector(q[i] - zero, Vec);
        vec_store(out + i * VEC, m ? w + offset : w);
    }
}

static void decode_q4_0(float *out, const void *blocks, int64_t n)
{
    const BlockQ4_0 *b = blocks;
    for (int64_t i = 0; i < n; i++) {
        Ivec q[PARTS];
        nibbles_of(q, b[i].q);
        put_small(out + i * BLOCK_SMALL, q, 8, b[i].d, NULL);
    }
}

static void decode_q4_1(float *out, const void *blocks, int64_t n)
{
    const BlockQ4_1 *b = blocks;
    for (int64_t i = 0; i < n; i++) {
        Ivec     q[PARTS];
        uint16_t m = b[i].m;
        nibbles_of(q, b[i].q);
        put_small(out + i * BLOCK_SMALL, q, 0, b[i].d, &m);
    }
}

static void decode_q5_0(float *out, const void *blocks, int64_t n)
{
    const BlockQ5_0 *b = blocks;
    for (int64_t i = 0; i < n; i++) {
        Ivec q[PARTS];
        nibbles_of(q, b[i].q);
        fifth_bits_of(q, b[i].high);
        put_small(out + i * BLOCK_SMALL, q, 16, b[i].d, NULL);
    }
}

static void decode_q5_1(float *out, const void *blocks, int64_t n)
{
    const BlockQ5_1 *b = blocks;
    for (int64_t i = 0; i < n; i++) {
        Ivec     q[PARTS];
        uint16_t m = b[i].m;
        nibbles_of(q, b[i].q);
        fifth_bits_of(q, b[i].high);
        put_small(out + i * BLOCK_SMALL, q, 0, b[i].d, &m);
    }
}

static void decode_q8_0(float *out, const void *blocks, int64_t n)
{
    const BlockQ8_0 *b = blocks;
    for (int64_t i = 0; i < n; i++) {
        Ivec q[PARTS];
        for (int j = 0; j < PARTS; j++)
            q[j] = ivec_load_bytes(b[i].q + j * VEC);
        put_small(out + i * BLOCK_SMALL, q, 0, b[i].d, NULL);
    }
}

/* --- decoding: blocks of 256 by way of their codes --- */

/* Sizes are constants where this is inlined: vectors. */
ALWAYS void put_large(float *out, const int8_t *codes, const float *scales,
                      const float *offsets, int group)
{
    for (int g = 0; g < BLOCK_LARGE / group; g++)
        for (int i = 0; i < group; i++) {
            float w = scales[g] * (float)codes[g * group + i];
            out[g * group + i] = offsets ? w + offsets[g] : w;
        }
}

static void decode_q4_k(float *out, const void *blocks, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int8_t codes[BLOCK_LARGE];
        float  scales[8], offsets[8];
        open_q4_k(codes, scales, offsets, (const BlockQ4_K *)blocks + i);
        put_large(out + i * BLOCK_LARGE, codes, scales, offsets, 32);
    }
}

static void decode_q5_k(float *out, const void *blocks, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int8_t codes[BLOCK_LARGE];
        float  scales[8], offsets[8];
        open_q5_k(codes, scales, offsets, (const BlockQ5_K *)blocks + i);
        put_large(out + i * BLOCK_LARGE, codes, scales, offsets, 32);
    }
}

static void decode_q6_k(float *out, const void *blocks, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int8_t codes[BLOCK_LARGE];
        float  scales[16];
        open_q6_k(codes, scales, NULL, (const BlockQ6_K *)blocks + i);
        put_large(out + i * BLOCK_LARGE, codes, scales, NULL, 16);
    }
}

const BlocksIsa ISA_NAME(blocks_) = {
    .open = {[BLOCK_Q4_0] = open_q4_0, [BLOCK_Q4_1] = open_q4_1, [BLOCK_Q5_0] = open_q5_0,
             [BLOCK_Q5_1] = open_q5_1, [BLOCK_Q8_0] = open_q8_0, [BLOCK_Q4_K] = open_q4_k,
             [BLOCK_Q5_K] = open_q5_k, [BLOCK_Q6_K] = open_q6_k},
    .decode = {[BLOCK_Q4_0] = decode_q4_0, [BLOCK_Q4_1] = decode_q4_1,
               [BLOCK_Q5_0] = decode_q5_0, [BLOCK_Q5_1] = decode_q5_1,
               [BLOCK_Q8_0] = decode_q8_0, [BLOCK_Q4_K] = decode_q4_k,
               [BLOCK_Q5_K] = decode_q5_k, [BLOCK_Q6_K] = decode_q6_k},
};
