/* test_product64.c - products of doubles against long double; rows on both sides of tiles
 * (4, 6, 12), k on both sides of a part (128). */
#include "kernels/product64.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

enum { COLS = PRODUCT64_COLS, M = 49, K = 300, LDA = K + 3, LDC = COLS + 5 };

static double a[M * LDA], b[K * COLS], out[M * LDC], start[M * LDC];

static void fill(uint64_t seed)
{
    for (int i = 0; i < M * LDA; i++)
        a[i] = (double)check_normal(&seed) + 1e-9 * (double)check_normal(&seed);
    for (int i = 0; i < K * COLS; i++)
        b[i] = (double)check_normal(&seed) + 1e-9 * (double)check_normal(&seed);
    for (int i = 0; i < M * LDC; i++)
        start[i] = (double)check_normal(&seed);
    memcpy(out, start, sizeof out);
}

/* Each number within what a chain of k sums may lose; all others as they were. */
static bool agrees(int m, int k)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < LDC; j++) {
            long double want = start[i * LDC + j], size = fabsl(want);
            for (int p = 0; p < k && i < m && j < COLS; p++) {
                want -= (long double)a[i * LDA + p] * b[p * COLS + j];
                size += fabsl((long double)a[i * LDA + p] * b[p * COLS + j]);
            }
            double tol = i < m && j < COLS ? (double)size * (k + 1) * DBL_EPSILON : 0;
            if (!(fabsl(out[i * LDC + j] - want) <= tol))
                return false;
        }
    return true;
}

TEST(product64_agrees_with_long_double)
{
    static const int ROWS[] = {0, 1, 3, 5, 6, 11, 12, 13, 48, 49};
    static const int DEPTH[] = {0, 1, 127, 128, 129, 300};
    REF_EACH_ISA(isa)
    {
        for (int i = 0; i < 60; i++) {
            int m = ROWS[i % 10], k = DEPTH[i / 10];
            fill(1 + (uint64_t)i);
            product64_subtract(out, LDC, a, LDA, m, b, k);
            T_OK(agrees(m, k));
        }
    }
}

/* To the bit: one chain over k, each step rounded once where there is a fused multiply-add,
 * so that AVX2 and AVX-512 give the same factors of the same matrix. */
TEST(product64_is_one_chain)
{
    REF_EACH_ISA(isa)
    {
        fill(31 + (uint64_t)isa);
        product64_subtract(out, LDC, a, LDA, M, b, K);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < COLS; j++) {
                double want = start[i * LDC + j];
                for (int p = 0; p < K; p++) {
                    double x = a[i * LDA + p], y = b[p * COLS + j];
                    want = isa == CPU_PLAIN ? want - x * y : fma(-x, y, want);
                }
                T_NEAR(out[i * LDC + j], want, 0);
            }
    }
}

TEST(product64_rows_may_be_cut_anywhere)
{
    static double whole[M * LDC];
    REF_EACH_ISA(isa)
    {
        fill(5);
        product64_subtract(out, LDC, a, LDA, M, b, K);
        memcpy(whole, out, sizeof out);
        memcpy(out, start, sizeof out);
        for (int i = 0, n = 1; i < M; i += n, n = 1 + n * 5 % 17) {
            n = n < M - i ? n : M - i;
            product64_subtract(out + i * LDC, LDC, a + i * LDA, LDA, n, b, K);
        }
        T_OK(memcmp(whole, out, sizeof out) == 0);
    }
}

TEST(product64_passes_nan)
{
    REF_EACH_ISA(isa)
    {
        fill(9);
        a[14 * LDA + 130] = NAN;
        b[5 * COLS + 15] = INFINITY;
        product64_subtract(out, LDC, a, LDA, M, b, K);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < COLS; j++)
                T_OK(i == 14 ? isnan(out[i * LDC + j])
                             : j == 15 ? isinf(out[i * LDC + j]) : isfinite(out[i * LDC + j]));
    }
}
