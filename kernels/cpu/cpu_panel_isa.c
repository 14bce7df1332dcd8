/* cpu_panel_isa.c - panels of 64 outputs of a weight matrix (cpu_gemm.h) times
 * one row, or times many.
 * y[t,n] = sum_k x[t,k] w[n,k]
 * shapes  panel [K,64] f32 or [K/2,64,2] bf16, K even; x [rows,K]; y rows ldy apart;
 *         rows <= GEMM_ROWS
 * cost    2 * 64 K flops a row. One row reads its panel once, in order: memory bound; many run
 *         in tiles (cpu_tile.h)
 * sums    one chain an output over k, f32, so no row knows of the others; bf16 weights of one
 *         row widen exactly, of many vdpbf16ps adds two products at a time
 * NaN     goes through: NaN and 0 * infinity give NaN
 * test    tests/kernels/test_linear.c, T = 1, and every instruction set */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_tile.h"

enum {
    PANEL_VECS = PANEL / VEC,
    PART = PANEL_VECS < 8 ? PANEL_VECS : 8,  // vectors of sums of one row
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

/* K words of x and of each column of the panel. DEPTH of them stay in cache; the sums go on
 * where they lie. */
ALWAYS void panel_rows(Product p, int64_t rows, int64_t K, Step step)
{
    static const float ONES[GEMM_ROWS] = {[0 ... GEMM_ROWS - 1] = 1};
    for (int64_t k = 0; k < K; k += DEPTH) {
        tiles(p, rows, PANEL, K - k < DEPTH ? K - k : DEPTH, k ? ONES : NULL, 1, step);
        p.a += DEPTH;
        p.b += DEPTH * PANEL;
    }
}

static void rows_f32(float *y, int64_t ldy, const float *x, int64_t rows, const float *panel,
                     int64_t K)
{
    Product p = {y, (const Word *)x, (const Word *)panel, ldy, K, PANEL};
    panel_rows(p, rows, K, step_f32);
}

#if DQ_ISA_avx512
DOTS static void rows_bf16(float *y, int64_t ldy, const uint16_t *x, int64_t rows,
                           const uint16_t *panel, int64_t K)
{
    Product p = {y, (const void *)x, (const void *)panel, ldy, K / 2, PANEL};
    panel_rows(p, rows, K / 2, step_bf16);
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
