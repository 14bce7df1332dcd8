/* rounding.c - chooses the loops of an instruction set. */
#include "quant/methods/rounding.h"

#include "kernels/cpufeat.h"
#include "quant/methods/rounding_parts.h"

const RoundingIsa *rounding_isa(void)
{
    static const RoundingIsa *const ISA[N_CPU_ISAS] = {
        [CPU_PLAIN] = &rounding_plain, [CPU_AVX2] = &rounding_avx2,
        [CPU_AVX512] = &rounding_avx512,
    };
    return ISA[cpu_isa()];
}

void rounding_add(RoundSums *s, const float *w, const float *v, int64_t n)
{
    rounding_isa()->add(s, w, v, n);
}

RoundError rounding_total(const RoundSums *s)
{
    RoundError e = {0};
    for (int i = 0; i < ROUND_LANES; i++) {
        e.error2 += s->error2[i];
        e.sum2 += s->sum2[i];
    }
    return e;
}
