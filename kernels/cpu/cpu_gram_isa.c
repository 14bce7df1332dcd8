/* cpu_gram_isa.c - a tile of a gram matrix from panels of rows.
 * c[i,j] += sum_t a[t,i] b[t,j]
 * shapes  a [T,8] of a panel, b [T,48] of three, f32 or pairs of bf16; c [8,48] double, or a
 *         corner of it
 * cost    2 * 8 * 48 T flops; what the tile reads comes from the second level of the cache,
 *         9 bytes a step of the sums
 * sums    f32, one chain over t in order, added to c in double; plain has no fused
 *         multiply-add and rounds once more; of bf16, vdpbf16ps adds two products at a time
 * NaN     goes through
 * test    tests/kernels/test_gram.c */
#include "kernels/cpu/cpu_gram.h"
#include "kernels/half.h"
#include "kernels/vec.h"

enum {
    TILE_R = VEC == 16 ? 8 : 4,  // rows and vectors whose sums fit in the registers
    TILE_V = VEC == 16 ? 3 : 2,
    WIDTH = TILE_V * VEC
};

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

/* Asks for what add will need: a large gram has left the cache since its last rows. */
ALWAYS void fetch(const double *c, int64_t ldc, int64_t m, int64_t n)
{
    enum { LINE = 8 };
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j += LINE)
            __builtin_prefetch(c + i * ldc + j, 1);
}

/* --- f32 --- */

ALWAYS void tile(float *sum, const float *a, const float *b, int64_t panel, int64_t lines)
{
    Vec s[TILE_R][TILE_V] = {0};
    for (int64_t t = 0; t < lines; t++) {
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

static void tiles(double *c, int64_t ldc, int64_t m, int64_t n, const uint32_t *a,
                  const uint32_t *b, int64_t panel, int64_t lines)
{
    const float *fa = (const float *)a, *fb = (const float *)b;
    float        sum[GRAM_ROWS * GRAM_COLS];
    fetch(c, ldc, m, n);
    for (int j = 0; j < GRAM_COLS; j += WIDTH)
        for (int i = 0; i < GRAM_ROWS; i += TILE_R)
            tile(sum + i * GRAM_COLS + j, fa + i,
                 fb + j / GRAM_PANEL * panel + j % GRAM_PANEL, panel, lines);
    add(c, ldc, m, n, sum);
}

/* --- bf16 --- */

/* bf16_from_f32 in the high half, without its branch. */
ALWAYS Uvec bf16_high(const float *x)
{
    Uvec u = (Uvec)ivec_load(x);
    Uvec nan = (Uvec)((Ivec)(u & 0x7fffffffu) > 0x7f800000);
    Uvec rounded = u + 0x7fff + (u >> 16 & 1);
    return ((nan & (u | 0x400000)) | (~nan & rounded)) & 0xffff0000u;
}

static void round_line(uint32_t *to, const float *x, const float *next)
{
    (void)next;
    for (int i = 0; i < GRAM_PANEL; i += VEC)
        ivec_store(to + i, (Ivec)bf16_high(x + i));
}

#if DQ_ISA_avx512
#define DOTS __attribute__((target("avx512bf16")))

static void pair_line(uint32_t *to, const float *x, const float *next)
{
    ivec_store(to, (Ivec)(bf16_high(x) >> 16 | bf16_high(next)));
}

DOTS static void dots(double *c, int64_t ldc, int64_t m, int64_t n, const uint32_t *a,
                      const uint32_t *b, int64_t panel, int64_t lines)
{
    __m512 s[GRAM_ROWS][3] = {{{0}}};
    float  sum[GRAM_ROWS * GRAM_COLS];
    fetch(c, ldc, m, n);
    for (int64_t t = 0; t < lines; t++, a += GRAM_PANEL, b += GRAM_PANEL) {
        __m512bh x[3];
        for (int v = 0; v < 3; v++)
            x[v] = (__m512bh)_mm512_loadu_si512(b + v * panel);
#pragma GCC unroll 8
        for (int r = 0; r < GRAM_ROWS; r++) {
            __m512bh y = (__m512bh)_mm512_set1_epi32((int)a[r]);
            for (int v = 0; v < 3; v++)
                s[r][v] = _mm512_dpbf16_ps(s[r][v], y, x[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < GRAM_ROWS; r++)
        for (int v = 0; v < 3; v++)
            vec_store(sum + r * GRAM_COLS + v * VEC, (Vec)s[r][v]);
    add(c, ldc, m, n, sum);
}

const GramIsa ISA_NAME(gram_) = {tiles, dots, round_line, pair_line};
#else
const GramIsa ISA_NAME(gram_) = {tiles, NULL, round_line, NULL};
#endif
