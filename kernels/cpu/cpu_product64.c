/* cpu_product64.c - chooses the kernel of cpu_product64_isa.c for this processor. */
#include "kernels/cpu/cpu_product64.h"

#include "kernels/cpufeat.h"

void product64_subtract(double *c, int64_t ldc, const double *a, int64_t lda, int64_t m,
                        const double *b, int64_t k)
{
    static Product64 *const OF[N_CPU_ISAS] = {product64_plain, product64_avx2,
                                              product64_avx512};
    OF[cpu_isa()](c, ldc, a, lda, m, b, k);
}
