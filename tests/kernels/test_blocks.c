/* test_blocks.c - block formats against numbers of the gguf package, and against
 * codes picked out bit by bit as formats.md 4.4 lays them down. */
#include <math.h>
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

enum { N = 9, MOST = N * BLOCK_LARGE };

static uint8_t blocks[N * 256 + 1];
static float   out[MOST + 1], scales[MOST / 16 + 1], offsets[MOST / 16 + 1];
static int8_t  codes[MOST + 1];

/* Where the f16 of a block lie: their exponents are kept at 2^-7 .. 2^-4, the other
 * bytes are anything. */
static void fill(BlockType t, uint8_t *at)
{
    const BlockInfo *info = block_info(t);
    uint32_t         s = 1;
    for (int i = 0; i < N * info->bytes; i++) {
        s = s * 1664525 + 1013904223;
        at[i] = (uint8_t)(s >> 24);
    }
    for (uint8_t *b = at; b < at + N * info->bytes; b += info->bytes) {
        int first = t == BLOCK_Q6_K ? 208 : 0;
        b[first + 1] = (b[first + 1] & 0x8f) | 0x20;
        if (info->offsets)
            b[3] = (b[3] & 0x8f) | 0x20;
    }
}

static uint64_t hash(const void *data, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return h;
}

/* FNV of dequantize() of gguf 0.19 on the same bytes. */
static void decodes_to_the_bits_of_ggml(void)
{
    static const uint64_t WANT[N_BLOCKS] = {
        [BLOCK_Q4_0] = 0x3c629020025748b8, [BLOCK_Q4_1] = 0xd08fca06bf7ec5c0,
        [BLOCK_Q5_0] = 0xf6ff4c975617656a, [BLOCK_Q5_1] = 0x295a3687b0073df6,
        [BLOCK_Q8_0] = 0x53cfbac37c6fede4, [BLOCK_Q4_K] = 0xb2a463f83f308301,
        [BLOCK_Q5_K] = 0x152cd63c3ca13102, [BLOCK_Q6_K] = 0x8602674b2337b854,
    };
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        int n = N * block_info(t)->items;
        fill(t, blocks + 1);  // a mapped file promises no alignment
        out[n] = NAN;
        block_decode(out, t, blocks + 1, n);
        T_OK(hash(out, (size_t)n * sizeof *out) == WANT[t]);
        T_OK(isnan(out[n]));
    }
}

/* q of weight i, as formats.md 4.4 says where its bits are. */
static int code_of(BlockType t, const uint8_t *b, int i)
{
    int j = i % 16, nibble = i / 16 * 4, l = i % 32, g = i / 32;
    switch (t) {
    case BLOCK_Q4_0: return b[2 + j] >> nibble & 15;
    case BLOCK_Q4_1: return b[4 + j] >> nibble & 15;
    case BLOCK_Q5_0: return (b[6 + j] >> nibble & 15) | (b[2 + i / 8] >> i % 8 & 1) << 4;
    case BLOCK_Q5_1: return (b[8 + j] >> nibble & 15) | (b[4 + i / 8] >> i % 8 & 1) << 4;
    case BLOCK_Q8_0: return (int8_t)b[2 + i];
    case BLOCK_Q4_K: return b[16 + g / 2 * 32 + l] >> g % 2 * 4 & 15;
    case BLOCK_Q5_K:
        return (b[48 + g / 2 * 32 + l] >> g % 2 * 4 & 15) | (b[16 + l] >> g & 1) << 4;
    case BLOCK_Q6_K:
        return (b[g / 4 * 64 + i % 64] >> g % 4 / 2 * 4 & 15) |
               (b[128 + g / 4 * 32 + l] >> g % 4 * 2 & 3) << 4;
    default: return -999;
    }
}

/* What is taken from q to give the code. */
static int zero_of(BlockType t)
{
    return t == BLOCK_Q4_0 ? 8 : t == BLOCK_Q5_0 ? 16 : t == BLOCK_Q6_K ? 32 : 0;
}

static float f16_at(const uint8_t *b)
{
    return f16_to_f32((uint16_t)(b[0] | b[1] << 8));
}

static double scale_of(BlockType t, const uint8_t *b, int g)
{
    const uint8_t *p = b + 4;
    if (t == BLOCK_Q6_K)
        return f16_at(b + 208) * (int8_t)b[192 + g];
    if (t == BLOCK_Q4_K || t == BLOCK_Q5_K)
        return f16_at(b) * (g < 4 ? p[g] & 63 : (p[g + 4] & 15) | (p[g - 4] >> 6) << 4);
    return f16_at(b);
}

static double offset_of(BlockType t, const uint8_t *b, int g)
{
    const uint8_t *p = b + 4;
    if (t == BLOCK_Q4_K || t == BLOCK_Q5_K)
        return -f16_at(b + 2) * (g < 4 ? p[g + 4] & 63 : p[g + 4] >> 4 | (p[g] >> 6) << 4);
    return t == BLOCK_Q4_1 || t == BLOCK_Q5_1 ? f16_at(b + 2) : 0;
}

static void codes_are_those_bit_by_bit(void)
{
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        const BlockInfo *info = block_info(t);
        int              n = N * info->items, groups = n / info->group;
        fill(t, blocks);
        codes[n] = 99;
        scales[groups] = offsets[groups] = NAN;
        block_codes(codes, scales, info->offsets ? offsets : NULL, t, blocks, n);
        T_OK(codes[n] == 99 && isnan(scales[groups]) && isnan(offsets[groups]));
        for (int i = 0; i < n; i++) {
            const uint8_t *b = blocks + i / info->items * info->bytes;
            int            at = i % info->items, g = i / info->group;
            T_NEAR(codes[i], code_of(t, b, at) - zero_of(t), 0);
            T_OK(codes[i] >= -(1 << (info->bits - 1)) && codes[i] < 1 << (info->bits - 1));
            T_NEAR(scales[g], scale_of(t, b, at / info->group), 0);
            if (info->offsets)
                T_NEAR(offsets[g], offset_of(t, b, at / info->group), 0);
        }
    }
}

static void codes_decode_to_the_same_bits(void)
{
    static float back[MOST];
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        const BlockInfo *info = block_info(t);
        int              n = N * info->items;
        Codes            c = {.n = 1, .k = n, .bits = info->bits, .group = info->group,
                              .codes = codes, .scales = scales,
                              .offsets = info->offsets ? offsets : NULL};
        fill(t, blocks);
        block_decode(out, t, blocks, n);
        block_codes(codes, scales, offsets, t, blocks, n);
        codes_decode(back, &c, 0, 1);
        T_OK(memcmp(back, out, (size_t)n * sizeof *out) == 0);
    }
}

static void no_scale_is_zeros_and_nan_stays_in_its_block(void)
{
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        const BlockInfo *info = block_info(t);
        int              first = t == BLOCK_Q6_K ? 208 : 0, n = 3 * info->items;
        memset(blocks, 0, sizeof blocks);
        blocks[info->bytes + first + 1] = 0x7e;  // the f16 NaN, in the middle block
        block_decode(out, t, blocks, n);
        for (int i = 0; i < n; i++) {
            if (i / info->items == 1)
                T_OK(isnan(out[i]));
            else
                T_NEAR(out[i], 0, 0);
        }
    }
}

TEST(every_instruction_set)
{
    CpuIsa isa = N_CPU_ISAS;
    while (ref_next_isa(&isa)) {
        decodes_to_the_bits_of_ggml();
        codes_are_those_bit_by_bit();
        codes_decode_to_the_same_bits();
        no_scale_is_zeros_and_nan_stays_in_its_block();
    }
}

TEST(names_and_numbers)
{
    static const struct {
        const char *name;
        int         id, items, bytes;
    } WANT[N_BLOCKS] = {{"Q4_0", 2, 32, 18},   {"Q4_1", 3, 32, 20},   {"Q5_0", 6, 32, 22},
                        {"Q5_1", 7, 32, 24},   {"Q8_0", 8, 32, 34},   {"Q4_K", 12, 256, 144},
                        {"Q5_K", 13, 256, 176}, {"Q6_K", 14, 256, 210}};
    BlockType t = N_BLOCKS;
    for (int i = 0; i < N_BLOCKS; i++) {
        T_STATUS_OK(block_by_id(&t, WANT[i].id));
        T_OK((int)t == i);
        T_TEXT(block_info(t)->name, WANT[i].name);
        T_OK(block_info(t)->items == WANT[i].items && block_info(t)->bytes == WANT[i].bytes);
        T_STATUS_OK(block_by_name(&t, WANT[i].name));
        T_OK((int)t == i);
    }
    T_STATUS_OK(block_by_name(&t, "q4_k"));
    T_OK(t == BLOCK_Q4_K);
    T_FAILS(block_by_name(&t, "Q4_K_M"), ERR_UNSUPPORTED, "\"Q4_K_M\"");
    T_FAILS(block_by_id(&t, 10), ERR_UNSUPPORTED, "number 10");
    T_OK(t == BLOCK_Q4_K);
}
