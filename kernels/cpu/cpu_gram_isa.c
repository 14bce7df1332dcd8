/* cpu_gram_isa.c - a tile of a gram matrix from panels of rows.
 * c[i,j] += sum_t a[t,i] b[t,j]
 * shapes  a [T,8] of a panel, b [T,48] of three, f32; c [8,48] double, or a corner of it
 * cost    2 * 8 * 48 T flops; what the tile reads comes from the second level of the cache,
 *         9 bytes a step of the sums
 * sums    f32, one chain over t in order, added to c in double; plain has no fused
 *         multiply-add and rounds once more
 * NaN     goes through
 * test    tests/kernels/test_gram.c */
#include "kernels/cpu/cpu_gram.h"
#include "kernels/vec.h"

enum {
    TILE_R = VEC == 16 ? 8 : 4,  // rows and vectors whose sums fit in the registers
    TILE_V = VEC == 16 ? 3 : 2,
    WIDTH = TILE_V * VEC
};

/* Rows and columns of sum [8,48] from (i, j) on. */
ALWAYS void tile(float *sum, const float *a, const float *b, int64_t panel, int64_t T)
{
    Vec s[TILE_R][TILE_V] = {0};
    for (int64_t t = 0; t < T; t++) {
        Vec x[TILE_V];
        for (int v = 0; v < TILE_V; v++)
            x[v] = vec_load(b + t * GRAM_PANEL + v * VEC / GRAM_PANEL * panel +
                            v * VEC % GRAM_PANEL);
#pragma GCC unroll 8
        for (int r = 0; r < TILE_R; r++) {
            Vec y = vec_all(a[t * GRAM_PANEL + r]);
            for (int v = 0; v < TILE_V; v++)
                s[r][v] = vec_fma(y, x[v], s[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < TILE_R; r++)
        for (int v = 0; v < TILE_V; v++)
            vec_store(sum + r * GRAM_COLS + v * VEC, s[r][v]);
}

static void add(double *c, int64_t ldc, int64_t m, int64_t n, const float *sum)
{
    for (int64_t i = 0; i < m; i++, c += ldc, sum += GRAM_COLS) {
        int64_t j = 0;
        for (; j + DVEC <= n; j += DVEC)
            *(DvecAt *)(c + j) += dvec_from(sum + j);
        for (; j < n; j++)
            c[j] += (double)sum[j];
    }
}

void ISA_NAME(gram_)(double *c, int64_t ldc, int64_t m, int64_t n, const float *a,
                     const float *b, int64_t panel, int64_t T)
{
    float sum[GRAM_ROWS * GRAM_COLS];
    for (int j = 0; j < GRAM_COLS; j += WIDTH)
        for (int i = 0; i < GRAM_ROWS; i += TILE_R)
            tile(sum + i * GRAM_COLS + j, a + i,
                 b + j / GRAM_PANEL * panel + j % GRAM_PANEL, panel, T);
    add(c, ldc, m, n, sum);
}
