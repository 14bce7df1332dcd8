/* cpu_product.c - general products, through oneDNN's sgemm.
 * c = alpha op(a) op(b) + beta c
 * shapes  a [m,k] or [k,m], b [k,n] or [n,k], c [m,n] f32, rows lda, ldb, ldc apart
 * cost    2 m n k flops
 * threads take tiles of c, one call of oneDNN each, which runs it on that thread
 * sums    f32 in the order that oneDNN has for a tile of that shape: so the shape of
 *         the product decides, the number of threads does not
 * NaN     goes through; alpha 0 does not read a and b, beta 0 does not read c
 * test    tests/kernels/test_product.c */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "kernels/cpu/cpu_gemm.h"
#include "kernels/size.h"

enum { TILE = 256 };

/* c = beta c, what is left when there is nothing to add. */
static void scale(const MatrixProduct *p)
{
    for (int64_t i = 0; i < p->m; i++) {
        float *c = p->c + i * p->ldc;
        if (p->beta == 0)
            memset(c, 0, (size_t)p->n * sizeof *c);
        else
            for (int64_t j = 0; j < p->n; j++)
                c[j] *= p->beta;
    }
}

static int product_tile(const MatrixProduct *p, int64_t i, int64_t j)
{
    return dnnl_sgemm(p->a_t ? 'T' : 'N', p->b_t ? 'T' : 'N', i64_min(TILE, p->m - i),
                      i64_min(TILE, p->n - j), p->k, p->alpha,
                      p->a + (p->a_t ? i : i * p->lda), p->lda,
                      p->b + (p->b_t ? j * p->ldb : j), p->ldb, p->beta,
                      p->c + i * p->ldc + j, p->ldc);
}

Status cpu_product(Backend *be, const MatrixProduct *p)
{
    int64_t rows = ceil_div(p->m, TILE), cols = ceil_div(p->n, TILE);
    int     error = 0, n_threads = omp_get_max_threads();
    if (p->k == 0 || p->alpha == 0) {
        scale(p);
        return OK;
    }
    /* A region of one thread is none: there oneDNN would start its own. */
    omp_set_num_threads(1);
#pragma omp parallel for schedule(dynamic) num_threads(cpu_threads(be, p->m * p->n * p->k))
    for (int64_t t = 0; t < rows * cols; t++) {
        int failed = product_tile(p, t % rows * TILE, t / rows * TILE);
        if (failed) {
#pragma omp atomic write
            error = failed;
        }
    }
    omp_set_num_threads(n_threads);
    return error ? gemm_error(error, "matrix product") : OK;
}
