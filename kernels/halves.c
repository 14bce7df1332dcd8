/* halves.c - chooses the conversion of a dtype and instruction set. */
#include "kernels/halves.h"

#include "kernels/cpu/cpu_halves.h"
#include "kernels/cpufeat.h"

static const HalvesIsa *halves_isa(void)
{
    static const HalvesIsa *const ISA[N_CPU_ISAS] = {
        [CPU_PLAIN] = &halves_plain, [CPU_AVX2] = &halves_avx2, [CPU_AVX512] = &halves_avx512,
    };
    return ISA[cpu_isa()];
}

bool halves_to_f32(float *out, Dtype d, const void *in, int64_t n)
{
    CHECK(d == DTYPE_F32 || d == DTYPE_F16 || d == DTYPE_BF16);
    return halves_isa()->to_f32[d](out, in, n);
}

bool halves_from_f32(void *out, Dtype d, const float *in, int64_t n)
{
    CHECK(d == DTYPE_F32 || d == DTYPE_F16 || d == DTYPE_BF16);
    return halves_isa()->from_f32[d](out, in, n);
}
