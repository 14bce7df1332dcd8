/* cpu_panel_isa.c - panels of 64 outputs of a weight matrix (cpu_gemm.h) times
 * one row, or times many where oneDNN has no kernel that keeps our promise: its
 * gemm for AVX2 gives a row other bits in other places of a batch.
 * c[t,n] = sum_k x[t,k] w[n,k]
 * shapes  panel [K,64] f32 or [K/2,64,2] bf16, K even; x [rows,K]; any rows >= 0
 * cost    one row: reads its panel once, in order: memory bound
 * sums    one chain an output over k, f32, so no row knows of the others; bf16
 *         weights widen exactly
 * NaN     goes through: NaN and 0 * infinity give NaN
 * test    tests/kernels/test_linear.c, T = 1, and every instruction set */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/vec.h"

enum {
    PANEL_VECS = PANEL / VEC,
    PART = PANEL_VECS < 8 ? PANEL_VECS : 8,  // vectors of sums of one row
    TILE_R = VEC == 16 ? 12 : 6,             // rows and vectors of a tile whose
    TILE_V = 2,                              //   sums fit in the registers
    K_PART = 512                             // of the panel, to stay in cache
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

/* c [R rows of PANEL] += x [R rows of ldx] w, TILE_V vectors of its columns. */
ALWAYS void tile(float *c, const float *x, int64_t ldx, const float *w, int64_t K, const int R)
{
    Vec sum[TILE_R][TILE_V];
#pragma GCC unroll 12
    for (int i = 0; i < R; i++)
        for (int j = 0; j < TILE_V; j++)
            sum[i][j] = vec_load(c + i * PANEL + j * VEC);
    for (int64_t k = 0; k < K; k++) {
        Vec w0 = vec_load(w + k * PANEL), w1 = vec_load(w + k * PANEL + VEC);
#pragma GCC unroll 12
        for (int i = 0; i < R; i++) {
            Vec xk = vec_all(x[i * ldx + k]);
            sum[i][0] = vec_fma(xk, w0, sum[i][0]);
            sum[i][1] = vec_fma(xk, w1, sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < R; i++)
        for (int j = 0; j < TILE_V; j++)
            vec_store(c + i * PANEL + j * VEC, sum[i][j]);
}

static void rows_f32(float *c, const float *x, int64_t rows, const float *panel, int64_t K)
{
    for (int64_t i = 0; i < rows * PANEL; i++)
        c[i] = 0;
    for (int64_t k = 0; k < K; k += K_PART) {
        int64_t depth = K - k < K_PART ? K - k : K_PART;
        for (int n = 0; n < PANEL; n += TILE_V * VEC) {
            const float *w = panel + k * PANEL + n, *xk = x + k;
            int64_t      i = 0;
            for (; i + TILE_R <= rows; i += TILE_R)
                tile(c + i * PANEL + n, xk + i * K, K, w, depth, TILE_R);
            for (; i + 2 <= rows; i += 2)
                tile(c + i * PANEL + n, xk + i * K, K, w, depth, 2);
            if (i < rows)
                tile(c + i * PANEL + n, xk + i * K, K, w, depth, 1);
        }
    }
}

static void expand(float *out, const uint16_t *panel, int64_t K)
{
    for (int64_t k = 0; k < K; k += 2)
        for (int n = 0; n < PANEL; n += VEC) {
            Uvec pair = (Uvec)ivec_load(panel + k * PANEL + 2 * n);
            vec_store(out + k * PANEL + n, (Vec)(pair << 16));
            vec_store(out + (k + 1) * PANEL + n, (Vec)(pair & 0xffff0000u));
        }
}

const PanelIsa ISA_NAME(panel_) = {row_f32, row_bf16, rows_f32, expand};
