/* cpu_matvec_isa.c - panels of weights times one vector.
 * y[n] = sum_k x[k] w[n,k], n of one panel of 64 outputs (cpu_gemm.h)
 * cost    reads K * 64 weights once, in order: memory bound
 * sums    one chain a output over k, f32; bf16 weights widen exactly
 * NaN     goes through: NaN and 0 * infinity give NaN
 * test    tests/kernels/test_linear.c, T = 1 */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_vec.h"

enum { PANEL_VECS = PANEL / VEC, PART = PANEL_VECS < 8 ? PANEL_VECS : 8 };

/* PART vectors of a panel at a time stay in registers. */
static void matvec_f32(float *y, const float *x, const float *panel, int64_t K)
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
            vec_store(y + part + j * VEC, sum[j]);
    }
}

/* A word holds inputs k and k + 1 of one output; bf16 is the high half of f32. */
static void matvec_bf16(float *y, const float *x, const uint16_t *panel, int64_t K)
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
            vec_store(y + part + j * VEC, sum[j]);
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

const MatvecIsa ISA_NAME(matvec_) = {matvec_f32, matvec_bf16, expand};
