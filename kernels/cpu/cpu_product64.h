/* cpu_product64.h - the kernel of product64.h, once an instruction set. */
#ifndef DQ_CPU_PRODUCT64_H
#define DQ_CPU_PRODUCT64_H

#include "kernels/product64.h"

typedef void Product64(double *c, int64_t ldc, const double *a, int64_t lda, int64_t m,
                       const double *b, int64_t k);

extern Product64 product64_plain, product64_avx2, product64_avx512;

#endif
