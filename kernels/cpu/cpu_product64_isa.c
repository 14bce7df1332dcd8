/* cpu_product64_isa.c - strips of 16 columns of a product of doubles.
 * c[i,j] -= sum_k a[i,k] b[k,j]
 * shapes  a [m,k], b [k,16], c [m,16] double; any m, k >= 0
 * cost    32 m k flops; b is read from the nearest cache, K_PART rows of it at a time
 * sums    one chain a number over k, in order, across parts too; plain has no fused
 *         multiply-add and rounds once more
 * NaN     goes through
 * test    tests/kernels/test_product64.c */
#include "kernels/cpu/cpu_product64.h"
#include "kernels/vec.h"

enum {
    COLS = PRODUCT64_COLS,
    TILE_R = VEC == 16 ? 12 : VEC == 8 ? 6 : 4,  // rows and vectors of a tile whose
    TILE_V = 2,                                  //   sums fit in the registers
    K_PART = 128
};

ALWAYS Dvec load(const double *p)
{
    return *(const DvecAt *)p;
}

ALWAYS void store(double *p, Dvec v)
{
    *(DvecAt *)p = v;
}

/* c - a * b, rounded once where the instruction set can. */
ALWAYS Dvec minus_product(Dvec a, Dvec b, Dvec c)
{
#if DQ_ISA_avx512
    return (Dvec)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif DQ_ISA_avx2
    return (Dvec)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return c - a * b;
#endif
}

/* R rows and TILE_V vectors of c. */
ALWAYS void tile(double *c, int64_t ldc, const double *a, int64_t lda, const double *b,
                 int64_t K, const int R)
{
    Dvec sum[TILE_R][TILE_V];
#pragma GCC unroll 12
    for (int i = 0; i < R; i++)
        for (int j = 0; j < TILE_V; j++)
            sum[i][j] = load(c + i * ldc + j * DVEC);
    for (int64_t k = 0; k < K; k++) {
        Dvec b0 = load(b + k * COLS), b1 = load(b + k * COLS + DVEC);
#pragma GCC unroll 12
        for (int i = 0; i < R; i++) {
            Dvec x = a[i * lda + k] - (Dvec){0};
            sum[i][0] = minus_product(x, b0, sum[i][0]);
            sum[i][1] = minus_product(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < R; i++)
        for (int j = 0; j < TILE_V; j++)
            store(c + i * ldc + j * DVEC, sum[i][j]);
}

void ISA_NAME(product64_)(double *c, int64_t ldc, const double *a, int64_t lda, int64_t m,
                          const double *b, int64_t k)
{
    for (int64_t first = 0; first < k; first += K_PART) {
        int64_t depth = k - first < K_PART ? k - first : K_PART;
        for (int j = 0; j < COLS; j += TILE_V * DVEC) {
            const double *bk = b + first * COLS + j, *ak = a + first;
            int64_t       i = 0;
            for (; i + TILE_R <= m; i += TILE_R)
                tile(c + i * ldc + j, ldc, ak + i * lda, lda, bk, depth, TILE_R);
            for (; i < m; i++)
                tile(c + i * ldc + j, ldc, ak + i * lda, lda, bk, depth, 1);
        }
    }
}
