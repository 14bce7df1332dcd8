/* factor.c - U with H^-1 = U^T U, from one factorization and one triangular inversion.
 *
 * H = R R^T with R upper triangular: as Cholesky, but from the last column to the first
 * (with J the reversal it is Cholesky of J H J). Then H^-1 = R^-T R^-1, so U = R^-1.
 * The usual way to U, Cholesky of the inverse that comes from another Cholesky, is twice
 * the work.
 *
 * Blocks of BLOCK columns, in place. k: a block, T = R[k,k]^-1, S: strips of rows above.
 *   down, k from the last to the first:
 *     T       from H[k,k]                     one thread, unblocked
 *     R[S,k]  = H[S,k] T^T                    in the place of H[S,k]
 *     H[S,S'] -= R[S,k] R[S',k]^T             K^3 / 6 multiplications
 *   up, k from the first to the last:
 *     U[S,k]  = -(U[S,S..] R[S..,k]) T        as many
 * All but T are product64_subtract: strips of rows are the tasks of the threads, so no
 * sum depends on their number. */
#include "quant/methods/factor.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/product64.h"
#include "kernels/size.h"

enum { COLS = PRODUCT64_COLS, BLOCK = 96, STRIP = 48 };
_Static_assert(BLOCK % COLS == 0 && BLOCK % STRIP == 0, "a strip's own triangle is in a block");

typedef struct {
    double  *h;         // [K, stride]
    int64_t  K, stride;
    double  *diagonal;  // [K] of H, to judge pivots by
    double  *panels;    // R[..,k] packed for products: transposed [k/16][n][16] on the way
                        //   down, [n/16][k][16] on the way up
    double  *block;     // T of block k, likewise [n/16][n][16]
    int      n_threads;
} Factor;

/* Never a multiple of 1 KiB: rows would meet in the same few sets of a cache. */
int64_t factor_stride(int64_t K)
{
    int64_t stride = ceil_div(K, COLS) * COLS;
    return stride % 128 ? stride : stride + COLS;
}

/* --- one block on the diagonal --- */

/* d [n,n] upper half becomes R, d = R R^T. -1, or the column whose pivot is lost. */
static int64_t factor_block(double *d, int64_t stride, int64_t n, const double *diagonal,
                            double lost)
{
    double column[BLOCK];
    for (int64_t j = n - 1; j >= 0; j--) {
        double pivot = d[j * stride + j];
        if (!(pivot > lost * diagonal[j]) || !isfinite(pivot))
            return j;
        double root = sqrt(pivot);
        d[j * stride + j] = root;
        for (int64_t i = 0; i < j; i++)
            column[i] = d[i * stride + j] /= root;
        for (int64_t i = 0; i < j; i++)
            for (int64_t k = i; k < j; k++)
                d[i * stride + k] -= column[i] * column[k];
    }
    return -1;
}

/* r [n,n] upper becomes its inverse, with zeros left of the diagonal. */
static void invert_block(double *r, int64_t stride, int64_t n)
{
    double sum[BLOCK];
    for (int64_t i = n - 1; i >= 0; i--) {
        double *row = r + i * stride;
        memset(sum, 0, sizeof sum);
        for (int64_t k = i + 1; k < n; k++)
            for (int64_t j = k; j < n; j++)
                sum[j] += row[k] * r[k * stride + j];
        memset(row, 0, (size_t)i * sizeof *row);
        row[i] = 1 / row[i];
        for (int64_t j = i + 1; j < n; j++)
            row[j] = -sum[j] * row[i];
    }
}

/* T as panels for a product that adds: with its sign turned. */
static void pack_block(Factor *f, const double *t, int64_t n, bool transposed)
{
    memset(f->block, 0, BLOCK * BLOCK * sizeof *f->block);
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = 0; j < n; j++)
            f->block[(j / COLS * n + k) * COLS + j % COLS] =
                -(transposed ? t[j * f->stride + k] : t[k * f->stride + j]);
}

/* --- strips of rows --- */

/* h[first .. first + STRIP, k ..  k + n] = strip T^(T) as packed. */
static void times_block(Factor *f, int64_t first, int64_t k, int64_t n, const double *strip)
{
    double *h = f->h + first * f->stride + k;
    for (int64_t i = 0; i < STRIP; i++)
        memset(h + i * f->stride, 0, (size_t)n * sizeof *h);
    for (int64_t j = 0; j < n; j += COLS)
        product64_subtract(h + j, f->stride, strip, BLOCK, STRIP, f->block + j * n, n);
}

/* R[S,k], and its transpose as panels. */
static void down_strip(Factor *f, int64_t first, int64_t k, int64_t n)
{
    double        strip[STRIP * BLOCK];
    const double *h = f->h + first * f->stride + k;
    for (int64_t i = 0; i < STRIP; i++)
        memcpy(strip + i * BLOCK, h + i * f->stride, (size_t)n * sizeof *h);
    times_block(f, first, k, n, strip);
    for (int64_t i = 0; i < STRIP; i++)
        for (int64_t j = 0; j < n; j++)
            f->panels[((first + i) / COLS * n + j) * COLS + (first + i) % COLS] =
                h[i * f->stride + j];
}

/* H[S,S'] -= R[S,k] R[S',k]^T, on and right of the diagonal. */
static void update_strip(Factor *f, int64_t first, int64_t k, int64_t n)
{
    double *h = f->h + first * f->stride;
    for (int64_t j = first; j < k; j += COLS)
        product64_subtract(h + j, f->stride, h + k, f->stride, STRIP, f->panels + j * n, n);
}

/* R[S,k] as rows of panels that are k long. */
static void pack_strip(Factor *f, int64_t first, int64_t k, int64_t n)
{
    for (int64_t i = first; i < first + STRIP; i++)
        for (int64_t j = 0; j < n; j += COLS)
            memcpy(f->panels + (j * k) + i * COLS, f->h + i * f->stride + k + j,
                   COLS * sizeof *f->h);
}

/* U[S,k] */
static void up_strip(Factor *f, int64_t first, int64_t k, int64_t n)
{
    double        strip[STRIP * BLOCK] = {0};
    const double *u = f->h + first * f->stride + first;
    for (int64_t j = 0; j < n; j += COLS)
        product64_subtract(strip + j, BLOCK, u, f->stride, STRIP,
                           f->panels + j * k + first * COLS, k - first);
    times_block(f, first, k, n, strip);
}

typedef void StripWork(Factor *, int64_t first, int64_t k, int64_t n);

/* k is a multiple of STRIP: no strip above a block is ragged. */
static void each_strip(Factor *f, StripWork *work, int64_t k, int64_t n)
{
#pragma omp parallel for schedule(dynamic) num_threads(f->n_threads)
    for (int64_t first = 0; first < k; first += STRIP)
        work(f, first, k, n);
}

/* --- the whole --- */

static Status down(Factor *f)
{
    double lost = (double)f->K * DBL_EPSILON;
    for (int64_t k = (f->K - 1) / BLOCK * BLOCK; k >= 0; k -= BLOCK) {
        int64_t n = i64_min(BLOCK, f->K - k);
        double *d = f->h + k * f->stride + k;
        int64_t bad = factor_block(d, f->stride, n, f->diagonal + k, lost);
        if (bad >= 0)
            FAIL(ERR_RANGE, "a matrix of %lld columns is not positive definite: %lld is, "
                 "within rounding, a sum of others", (long long)f->K, (long long)(k + bad));
        invert_block(d, f->stride, n);
        pack_block(f, d, n, true);
        each_strip(f, down_strip, k, n);
        each_strip(f, update_strip, k, n);
    }
    return OK;
}

static void up(Factor *f)
{
    for (int64_t k = 0; k < f->K; k += BLOCK) {
        int64_t n = i64_min(BLOCK, f->K - k);
        pack_block(f, f->h + k * f->stride + k, n, false);
        each_strip(f, pack_strip, k, n);
        each_strip(f, up_strip, k, n);
    }
}

static Status run(Factor *f, Arena *scratch)
{
    ARENA_NEW(f->diagonal, scratch, f->K);
    ARENA_NEW(f->block, scratch, BLOCK * BLOCK);
    ARENA_NEW(f->panels, scratch, f->stride * BLOCK);
    for (int64_t i = 0; i < f->K; i++)
        f->diagonal[i] = f->h[i * f->stride + i];
    TRY(down(f));
    up(f);
    return OK;
}

Status factor_inverse(double *h, int64_t K, Arena *scratch, int n_threads)
{
    ArenaMark mark = arena_mark(scratch);
    Factor    f = {.h = h, .K = K, .stride = factor_stride(K), .n_threads = n_threads};
    Status    s = run(&f, scratch);
    arena_rewind(scratch, mark);
    return s;
}
