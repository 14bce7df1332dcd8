/* kquant.c - the way in to the encoders of the block formats: by type and instruction set. */
#include "quant/methods/kquant.h"

#include "kernels/cpufeat.h"
#include "quant/methods/kquant_parts.h"

static KquantEncoder encoder_of(BlockType type)
{
    static const KquantIsa *const SMALL[N_CPU_ISAS] = {
        [CPU_PLAIN] = &kquant_small_plain, [CPU_AVX2] = &kquant_small_avx2,
        [CPU_AVX512] = &kquant_small_avx512,
    };
    static const KquantIsa *const LARGE[N_CPU_ISAS] = {
        [CPU_PLAIN] = &kquant_large_plain, [CPU_AVX2] = &kquant_large_avx2,
        [CPU_AVX512] = &kquant_large_avx512,
    };
    bool large = block_info(type)->items == BLOCK_LARGE;
    return (large ? LARGE : SMALL)[cpu_isa()]->encode[type];
}

size_t kquant_bytes(BlockType type, int64_t n)
{
    return (size_t)(n / block_info(type)->items) * (size_t)block_info(type)->bytes;
}

void kquant_encode(void *blocks, BlockType type, const float *row, const float *importance,
                   int64_t n)
{
    KquantRow r = {.importance = importance};
    int64_t   items = block_info(type)->items;
    CHECK(n % items == 0);
    for (int64_t i = 0; importance && i < n; i++)
        r.mean2 += row[i] * row[i];
    r.mean2 /= (float)n;
    encoder_of(type)(blocks, row, &r, n / items);
}
