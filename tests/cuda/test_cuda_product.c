/* test_cuda_product.c - general products on the GPU against double: every transposition, rows
 * apart, and what is left when there is nothing to add. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

static const struct {
    int64_t m, n, k;
    float   alpha, beta;
} SIZES[] = {
    {1, 1, 1, 1, 0},      {3, 257, 5, -1, 1},  {255, 2, 33, 1, 1},    {32, 48, 64, 1, 0},
    {57, 30, 17, 2, -3},  {40, 60, 129, 1, 0}, {51, 1, 70, 0.5f, 1},  {1, 50, 100, -1, 1},
    {70, 31, 0, 1, 0.5f}, {9, 20, 0, 1, 0},    {5, 300, 40, 0, -2},   {17, 48, 70, 1, 1},
};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

typedef struct {
    Arena         arena;
    Backend       be;
    MatrixProduct p;       // on the device
    const float  *a, *b;   // on the host
    float        *start;   // c before
    Tensor        c;
    double       *want;
    double        loss;    // of a plain float loop
} Case;

/* What op_product shall do, in double and in a plain float loop; what lies between rows
 * stays. */
static void reference(Case *c)
{
    const MatrixProduct *p = &c->p;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double start = p->beta == 0 ? 0 : c->start[i * p->ldc + j], sum = 0;
            float  plain = 0;
            for (int64_t k = 0; k < p->k; k++) {
                float a = c->a[p->a_t ? k * p->lda + i : i * p->lda + k];
                float b = c->b[p->b_t ? j * p->ldb + k : k * p->ldb + j];
                sum += (double)a * b;
                plain += a * b;
            }
            double want = p->alpha * sum + p->beta * start;
            plain = p->alpha * plain + p->beta * (float)start;
            c->want[i * p->ldc + j] = want;
            c->loss = fmax(c->loss, fabs(plain - want));
        }
}

static Status upload(Case *c, int64_t a_rows, int64_t b_rows)
{
    Tensor a, b;
    TRY(ref_cuda_tensor(&c->be, &a, c->a, a_rows, c->p.lda, 1));
    TRY(ref_cuda_tensor(&c->be, &b, c->b, b_rows, c->p.ldb, 2));
    TRY(ref_cuda_tensor(&c->be, &c->c, c->start, c->p.m, c->p.ldc, 3));
    c->p.a = a.data;
    c->p.b = b.data;
    c->p.c = c->c.data;
    return OK;
}

static Status case_open(Case *c, int i, bool a_t, bool b_t)
{
    int64_t m = SIZES[i].m, n = SIZES[i].n, k = SIZES[i].k, ldc = n + i % 3;
    int64_t lda = (a_t ? m : k) + i % 4, ldb = (b_t ? k : n) + 3 * (i % 2);
    int64_t a_rows = a_t ? k : m, b_rows = b_t ? n : k;
    c->a = ref_normal(&c->arena, a_rows, lda, 1 + (uint64_t)i).data;
    c->b = ref_normal(&c->arena, b_rows, ldb, 50 + (uint64_t)i).data;
    c->start = ref_normal(&c->arena, m, ldc, 90 + (uint64_t)i).data;
    c->p = (MatrixProduct){m, n, k, SIZES[i].alpha, SIZES[i].beta, NULL, NULL, lda, ldb, ldc,
                           a_t, b_t, NULL};
    ARENA_NEW(c->want, &c->arena, m * ldc);
    for (int64_t x = 0; x < m * ldc; x++)
        c->want[x] = c->start[x];
    reference(c);
    for (int64_t x = 0; x < m * ldc && c->p.beta == 0; x++)
        if (x % ldc < n)
            c->start[x] = NAN;
    return upload(c, a_rows, b_rows);
}

static bool agrees(Case *c)
{
    const MatrixProduct *p = &c->p;
    float *got = ref_guarded(&c->arena, p->m * p->ldc);
    bool   whole;
    if (ref_cuda_read(&c->be, got, &c->c, &whole) != OK || !whole)
        return false;
    for (int64_t x = 0; x < p->m * p->ldc; x++)
        if (x % p->ldc >= p->n && got[x] != c->start[x])
            return false;
    return ref_worst(got, c->want, p->m * p->ldc) <= 2 * c->loss + 1e-6;
}

TEST(product_agrees_with_double)
{
    for (int i = 0; i < 4 * N_SIZES; i++) {
        Case c = {0};
        T_GPU(&c.be);
        T_STATUS_OK(case_open(&c, i % N_SIZES, i / N_SIZES % 2, i / N_SIZES / 2));
        T_STATUS_OK(op_product(&c.be, &c.p));
        if (!agrees(&c))
            check_fail(__FILE__, __LINE__, "size %d, a_t %d, b_t %d", i % N_SIZES, c.p.a_t,
                       c.p.b_t);
        backend_close(&c.be);
        arena_close(&c.arena);
    }
}

TEST(product_passes_nan_and_infinity)
{
    enum { M = 70, N = 40, K = 50 };
    Arena   arena = {0};
    Backend be;
    Tensor  ta, tb, tc;
    float  *a = ref_normal(&arena, M, K, 1).data, *b = ref_normal(&arena, K, N, 2).data;
    float  *c = ref_normal(&arena, M, N, 3).data;
    a[68 * K + 49] = NAN;
    a[3 * K] = INFINITY;
    b[20 * N + 39] = NAN;
    c[5 * N + 6] = NAN;
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_exact(&be, &ta, a, M, K));
    T_STATUS_OK(ref_cuda_exact(&be, &tb, b, K, N));
    T_STATUS_OK(ref_cuda_exact(&be, &tc, c, M, N));
    MatrixProduct p = {M, N, K, 1, 1, ta.data, tb.data, K, N, N, false, false, tc.data};
    T_STATUS_OK(op_product(&be, &p));
    T_STATUS_OK(backend_download(&be, c, &tc));
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float v = c[i * N + j];
            if (i == 68 || j == 39 || (i == 5 && j == 6))
                T_OK(isnan(v));
            else if (i == 3)
                T_OK(isinf(v) && (v > 0) == (b[j] > 0));
            else
                T_OK(isfinite(v));
        }
    p.alpha = p.beta = 0;  // reads neither
    T_STATUS_OK(op_product(&be, &p));
    T_STATUS_OK(backend_download(&be, c, &tc));
    for (int64_t i = 0; i < M * N; i++)
        T_OK(c[i] == 0);
    backend_close(&be);
    arena_close(&arena);
}

TEST(product_of_no_rows_is_fine)
{
    Backend be;
    T_GPU(&be);
    MatrixProduct p = {0, 3, 4, 1, 0, NULL, NULL, 4, 3, 3, false, false, NULL};
    T_STATUS_OK(op_product(&be, &p));
    backend_close(&be);
}

/* cuBLAS counts in 32 bits; what does not fit is said, not cut. */
TEST(product_names_a_side_that_is_too_long)
{
    Backend be;
    Tensor  x;
    float   one = 1;
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_exact(&be, &x, &one, 1, 1));
    MatrixProduct p = {1, 1, 1, 1, 0, x.data, x.data, (int64_t)INT32_MAX + 1, 1, 1, false,
                       false, x.data};
    T_FAILS(op_product(&be, &p), ERR_RANGE, "a side of 2147483648, at most 2147483647");
    backend_close(&be);
}
