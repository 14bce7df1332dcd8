/* ref_product.c - general products in double. */
#include "tests/kernels/ref_product.h"

#include <math.h>

#include "tests/kernels/ref_ops.h"

/* What op_product shall do, in double and in a plain float loop. */
static void reference(RefProduct *c)
{
    const MatrixProduct *p = &c->p;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double start = p->beta == 0 ? 0 : c->start[i * p->ldc + j], sum = 0;
            float  plain = 0;
            for (int64_t k = 0; k < p->k; k++) {
                float a = p->a[p->a_t ? k * p->lda + i : i * p->lda + k];
                float b = p->b[p->b_t ? j * p->ldb + k : k * p->ldb + j];
                sum += (double)a * b;
                plain += a * b;
            }
            double want = p->alpha * sum + p->beta * start;
            plain = p->alpha * plain + p->beta * (float)start;
            c->want[i * p->ldc + j] = want;
            c->loss = fmax(c->loss, fabs(plain - want));
        }
}

void ref_product_open(RefProduct *c, const ProductSize *size, int i, bool a_t, bool b_t)
{
    int64_t m = size->m, n = size->n, k = size->k, ldc = n + i % 3;
    int64_t lda = (a_t ? m : k) + i % 4, ldb = (b_t ? k : n) + 3 * (i % 2);
    *c = (RefProduct){.a_rows = a_t ? k : m, .b_rows = b_t ? n : k};
    const float *a = ref_normal(&c->arena, c->a_rows, lda, 1 + (uint64_t)i).data;
    const float *b = ref_normal(&c->arena, c->b_rows, ldb, 50 + (uint64_t)i).data;
    c->p = (MatrixProduct){m, n, k, size->alpha, size->beta, a, b, lda, ldb, ldc, a_t, b_t,
                           NULL};
    c->start = ref_normal(&c->arena, m, ldc, 90 + (uint64_t)i).data;
    c->want = arena_alloc(&c->arena, m * ldc, sizeof *c->want);
    for (int64_t x = 0; x < m * ldc; x++)
        c->want[x] = c->start[x];
    reference(c);
    for (int64_t x = 0; x < m * ldc && size->beta == 0; x++)
        if (x % ldc < n)
            c->start[x] = NAN;
}

bool ref_product_agrees(const RefProduct *c, const float *got)
{
    const MatrixProduct *p = &c->p;
    for (int64_t x = 0; x < p->m * p->ldc; x++)
        if (x % p->ldc >= p->n && got[x] != c->start[x])
            return false;
    return ref_worst(got, c->want, p->m * p->ldc) <= 2 * c->loss + 1e-6;
}

void ref_product_hurt(Arena *arena, int64_t m, float **a, float **b, float **c)
{
    *a = ref_normal(arena, m, HURT_K, 1).data;
    *b = ref_normal(arena, HURT_K, HURT_N, 2).data;
    *c = ref_normal(arena, m, HURT_N, 3).data;
    (*a)[(m - 2) * HURT_K + 49] = NAN;
    (*a)[3 * HURT_K] = INFINITY;
    (*b)[20 * HURT_N + 39] = NAN;
    (*c)[5 * HURT_N + 6] = NAN;
}

bool ref_product_hurts(const float *c, const float *b, int64_t m)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < HURT_N; j++) {
            float v = c[i * HURT_N + j];
            bool  nan = i == m - 2 || j == 39 || (i == 5 && j == 6);
            if (nan ? !isnan(v) : i == 3 ? !isinf(v) || (v > 0) != (b[j] > 0) : !isfinite(v))
                return false;
        }
    return true;
}
