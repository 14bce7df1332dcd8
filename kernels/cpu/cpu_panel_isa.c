/* cpu_panel_isa.c - panels of 64 outputs of a weight matrix (cpu_gemm.h) times
 * one row, or times many.
 * y[t,n] = sum_k x[t,k] w[n,k]
 * shapes  panel [K,64] f32 or [K/2,64,2] bf16, K even; x [rows,K]; y rows ldy apart; any rows >= 0
 * cost    2 * 64 K flops a row. One row reads its panel once, in order: memory bound. Many: a
 *         tile of 6 rows and 64 columns (AVX-512) loads 10 words or vectors for 24 products
 * sums    one chain an output over k, f32, so no row knows of the others; bf16 weights of one
 *         row widen exactly, of many vdpbf16ps adds two products at a time
 * NaN     goes through: NaN and 0 * infinity give NaN
 * test    tests/kernels/test_linear.c, T = 1, and every instruction set */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/vec.h"

enum {
    PANEL_VECS = PANEL / VEC,
    PART = PANEL_VECS < 8 ? PANEL_VECS : 8,  // vectors of sums of one row
    TILE_R = 6,                              // rows and vectors of a tile whose
    TILE_V = VEC == 16 ? 4 : 2,              //   sums fit in the registers
    DEPTH = 512                              // words of K of a panel that stay in cache
};

/* PART vectors of a panel at a time stay in registers. */
static void row_f32(float *c, const float *x, const float *panel, int64_t K)
{
    for (int part = 0; part < PANEL; part += PART * VEC) {
        Vec sum[PART] = {{0}};
        for (int64_t k = 0; k < K; k++) {
            const float *w = panel + k * PANEL + part;
            Vec          xk = vec_all(x[k]);
#pragma GCC unroll 8
            for (int j = 0; j < PART; j++)
                sum[j] = vec_fma(xk, vec_load(w + j * VEC), sum[j]);
        }
        for (int j = 0; j < PART; j++)
            vec_store(c + part + j * VEC, sum[j]);
    }
}

/* A word holds inputs k and k + 1 of one output; bf16 is the high half of f32. */
static void row_bf16(float *c, const float *x, const uint16_t *panel, int64_t K)
{
    for (int part = 0; part < PANEL; part += PART * VEC) {
        Vec sum[PART] = {{0}};
        for (int64_t k = 0; k < K; k += 2) {
            const uint16_t *w = panel + k * PANEL + 2 * part;
            Vec             x0 = vec_all(x[k]), x1 = vec_all(x[k + 1]);
#pragma GCC unroll 8
            for (int j = 0; j < PART; j++) {
                Uvec pair = (Uvec)ivec_load(w + j * 2 * VEC);
                sum[j] = vec_fma(x0, (Vec)(pair << 16), sum[j]);
                sum[j] = vec_fma(x1, (Vec)(pair & 0xffff0000u), sum[j]);
            }
        }
        for (int j = 0; j < PART; j++)
            vec_store(c + part + j * VEC, sum[j]);
    }
}

/* --- many rows --- */

typedef uint32_t Word __attribute__((may_alias));  // an input in f32, or two in bf16

/* y [R rows of ldy] = x [R rows of ldx] w, or += where `more`: the sums go on. TILE_V vectors of
 * columns, `depth` words of x and of each column. */
ALWAYS void tile(float *y, int64_t ldy, const Word *x, int64_t ldx, const Word *w,
                 int64_t depth, bool more, const int R, Vec (*step)(Vec sum, uint32_t x, Vec w))
{
    Vec sum[TILE_R][TILE_V] = {{{0}}};
    for (int i = 0; i < R && more; i++)
        for (int j = 0; j < TILE_V; j++)
            sum[i][j] = vec_load(y + i * ldy + j * VEC);
    for (int64_t k = 0; k < depth; k++, w += PANEL) {
        Vec wk[TILE_V];
#pragma GCC unroll 4
        for (int j = 0; j < TILE_V; j++)
            wk[j] = (Vec)ivec_load(w + j * VEC);
#pragma GCC unroll 6
        for (int i = 0; i < R; i++)
#pragma GCC unroll 4
            for (int j = 0; j < TILE_V; j++)
                sum[i][j] = step(sum[i][j], x[i * ldx + k], wk[j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; i++)
        for (int j = 0; j < TILE_V; j++)
            vec_store(y + i * ldy + j * VEC, sum[i][j]);
}

/* A tile of the rows that are left, at most TILE_R. */
ALWAYS void some_rows(float *y, int64_t ldy, const Word *x, int64_t ldx, int64_t rows,
                      const Word *w, int64_t depth, bool more,
                      Vec (*step)(Vec sum, uint32_t x, Vec w))
{
    switch (rows) {
    case 1:  tile(y, ldy, x, ldx, w, depth, more, 1, step); break;
    case 2:  tile(y, ldy, x, ldx, w, depth, more, 2, step); break;
    case 3:  tile(y, ldy, x, ldx, w, depth, more, 3, step); break;
    case 4:  tile(y, ldy, x, ldx, w, depth, more, 4, step); break;
    case 5:  tile(y, ldy, x, ldx, w, depth, more, 5, step); break;
    default: tile(y, ldy, x, ldx, w, depth, more, TILE_R, step);
    }
}

/* K words of x and of each column of the panel, DEPTH of them at a time. */
ALWAYS void panel_rows(float *y, int64_t ldy, const Word *x, int64_t rows,
                       const Word *panel, int64_t K,
                       Vec (*step)(Vec sum, uint32_t x, Vec w))
{
    for (int64_t k = 0; k < K; k += DEPTH)
        for (int n = 0; n < PANEL; n += TILE_V * VEC)
            for (int64_t i = 0; i < rows; i += TILE_R)
                some_rows(y + i * ldy + n, ldy, x + i * K + k, K, rows - i,
                          panel + k * PANEL + n, K - k < DEPTH ? K - k : DEPTH, k > 0, step);
}

ALWAYS Vec step_f32(Vec sum, uint32_t x, Vec w)
{
    return vec_fma((Vec)ivec_all((int32_t)x), w, sum);
}

static void rows_f32(float *y, int64_t ldy, const float *x, int64_t rows, const float *panel,
                     int64_t K)
{
    panel_rows(y, ldy, (const Word *)x, rows, (const Word *)panel, K, step_f32);
}

#if DQ_ISA_avx512
#define DOTS __attribute__((target("avx512bf16")))

DOTS ALWAYS Vec step_bf16(Vec sum, uint32_t x, Vec w)
{
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)x), (__m512bh)w);
}

DOTS static void rows_bf16(float *y, int64_t ldy, const uint16_t *x, int64_t rows,
                           const uint16_t *panel, int64_t K)
{
    panel_rows(y, ldy, (const Word *)(const void *)x, rows, (const Word *)(const void *)panel,
               K / 2, step_bf16);
}
#else
#define rows_bf16 NULL
#endif

static void expand(float *out, const uint16_t *panel, int64_t K)
{
    for (int64_t k = 0; k < K; k += 2)
        for (int n = 0; n < PANEL; n += VEC) {
            Uvec pair = (Uvec)ivec_load(panel + k * PANEL + 2 * n);
            vec_store(out + k * PANEL + n, (Vec)(pair << 16));
            vec_store(out + (k + 1) * PANEL + n, (Vec)(pair & 0xffff0000u));
        }
}

const PanelIsa ISA_NAME(panel_) = {row_f32, row_bf16, rows_f32, rows_bf16, expand};
