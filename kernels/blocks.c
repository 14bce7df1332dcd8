/* blocks.c - facts of the block formats of GGUF, and the way in to their reading. */
#include "kernels/blocks.h"

#include <strings.h>

#include "kernels/cpu/cpu_blocks.h"
#include "kernels/cpufeat.h"

static const BlockInfo TYPES[N_BLOCKS] = {
    [BLOCK_Q4_0] = {"Q4_0", 2, BLOCK_SMALL, sizeof(BlockQ4_0), 4, 32, false},
    [BLOCK_Q4_1] = {"Q4_1", 3, BLOCK_SMALL, sizeof(BlockQ4_1), 6, 32, true},
    [BLOCK_Q5_0] = {"Q5_0", 6, BLOCK_SMALL, sizeof(BlockQ5_0), 6, 32, false},
    [BLOCK_Q5_1] = {"Q5_1", 7, BLOCK_SMALL, sizeof(BlockQ5_1), 6, 32, true},
    [BLOCK_Q8_0] = {"Q8_0", 8, BLOCK_SMALL, sizeof(BlockQ8_0), 8, 32, false},
    [BLOCK_Q4_K] = {"Q4_K", 12, BLOCK_LARGE, sizeof(BlockQ4_K), 6, 32, true},
    [BLOCK_Q5_K] = {"Q5_K", 13, BLOCK_LARGE, sizeof(BlockQ5_K), 6, 32, true},
    [BLOCK_Q6_K] = {"Q6_K", 14, BLOCK_LARGE, sizeof(BlockQ6_K), 6, 16, false},
};

const BlockInfo *block_info(BlockType type)
{
    CHECK(type >= 0 && type < N_BLOCKS);
    return &TYPES[type];
}

Status block_by_name(BlockType *out, const char *name)
{
    for (int t = 0; t < N_BLOCKS; t++)
        if (strcasecmp(name, TYPES[t].name) == 0) {
            *out = (BlockType)t;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "block format \"%s\": known are Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, "
         "Q5_K, Q6_K", name);
}

Status block_by_id(BlockType *out, int id)
{
    for (int t = 0; t < N_BLOCKS; t++)
        if (TYPES[t].id == id) {
            *out = (BlockType)t;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "block format number %d of ggml: known are 2 (Q4_0), 3 (Q4_1), "
         "6 (Q5_0), 7 (Q5_1), 8 (Q8_0), 12 (Q4_K), 13 (Q5_K), 14 (Q6_K)", id);
}

static const BlocksIsa *blocks_isa(void)
{
    static const BlocksIsa *const ISA[N_CPU_ISAS] = {
        [CPU_PLAIN] = &blocks_plain, [CPU_AVX2] = &blocks_avx2, [CPU_AVX512] = &blocks_avx512,
    };
    return ISA[cpu_isa()];
}

void block_decode(float *out, BlockType type, const void *blocks, int64_t n)
{
    int64_t items = block_info(type)->items;
    CHECK(n % items == 0);
    blocks_isa()->decode[type](out, blocks, n / items);
}

void block_codes(int8_t *codes, float *scales, float *offsets, BlockType type,
                 const void *blocks, int64_t n)
{
    const BlocksIsa *isa = blocks_isa();
    const BlockInfo *info = block_info(type);
    const uint8_t   *at = blocks;
    const int        groups = info->items / info->group;
    CHECK(n % info->items == 0);
    for (int64_t i = 0; i < n; i += info->items, at += info->bytes) {
        isa->open[type](codes + i, scales, offsets, at);
        scales += groups;
        if (info->offsets)
            offsets += groups;
    }
}
