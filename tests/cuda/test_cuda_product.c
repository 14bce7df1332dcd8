/* test_cuda_product.c - general products on the GPU against double: every transposition, rows
 * apart, and what is left when there is nothing to add. */
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_gram.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_product.h"

static const ProductSize SIZES[] = {
    {1, 1, 1, 1, 0},      {3, 257, 5, -1, 1},  {255, 2, 33, 1, 1},    {32, 48, 64, 1, 0},
    {57, 30, 17, 2, -3},  {40, 60, 129, 1, 0}, {51, 1, 70, 0.5f, 1},  {1, 50, 100, -1, 1},
    {70, 31, 0, 1, 0.5f}, {9, 20, 0, 1, 0},    {5, 300, 40, 0, -2},   {17, 48, 70, 1, 1},
};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

/* *got: c afterwards, in memory of r->arena; *whole: nothing beside it was written. */
static Status multiply(Backend *be, RefProduct *r, float **got, bool *whole)
{
    Tensor        a, b, c;
    MatrixProduct p = r->p;
    TRY(ref_cuda_tensor(be, &a, p.a, r->a_rows, p.lda, 1));
    TRY(ref_cuda_tensor(be, &b, p.b, r->b_rows, p.ldb, 2));
    TRY(ref_cuda_tensor(be, &c, r->start, p.m, p.ldc, 3));
    p.a = a.data;
    p.b = b.data;
    p.c = c.data;
    TRY(op_product(be, &p));
    *got = ref_guarded(&r->arena, p.m * p.ldc);
    return ref_cuda_read(be, *got, &c, whole);
}

TEST(product_agrees_with_double)
{
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 4 * N_SIZES; i++) {
        ArenaMark  mark = backend_mark(&be);
        RefProduct c;
        float     *got;
        bool       whole;
        ref_product_open(&c, &SIZES[i % N_SIZES], i % N_SIZES, i / N_SIZES % 2,
                         i / N_SIZES / 2);
        T_STATUS_OK(multiply(&be, &c, &got, &whole));
        if (!whole || !ref_product_agrees(&c, got))
            check_fail(__FILE__, __LINE__, "size %d, a_t %d, b_t %d", i % N_SIZES, c.p.a_t,
                       c.p.b_t);
        backend_rewind(&be, mark);
        arena_close(&c.arena);
    }
    backend_close(&be);
}

TEST(product_passes_nan_and_infinity)
{
    enum { M = 70, N = HURT_N, K = HURT_K };
    Arena   arena = {0};
    Backend be;
    Tensor  ta, tb, tc;
    float  *a, *b, *c;
    ref_product_hurt(&arena, M, &a, &b, &c);
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_exact(&be, &ta, a, M, K));
    T_STATUS_OK(ref_cuda_exact(&be, &tb, b, K, N));
    T_STATUS_OK(ref_cuda_exact(&be, &tc, c, M, N));
    MatrixProduct p = {M, N, K, 1, 1, ta.data, tb.data, K, N, N, false, false, tc.data};
    T_STATUS_OK(op_product(&be, &p));
    T_STATUS_OK(backend_download(&be, c, &tc));
    T_OK(ref_product_hurts(c, b, M));
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

/* Of more rows than a part, and of more channels than go at once. */
TEST(gram_agrees_with_double)
{
    static const int64_t GRAMS[][2] = {{1, 1}, {3, 40}, {523, 17}, {20, 530}, {0, 9}};
    Backend              be;
    T_GPU(&be);
    for (int i = 0; i < 5; i++) {
        ArenaMark mark = backend_mark(&be);
        RefGram   c;
        Tensor    x;
        ref_gram_open(&c, GRAMS[i][0], GRAMS[i][1], 1 + (uint64_t)i);
        double *got = arena_raw(&c.arena, c.K * c.K, sizeof *got);
        memcpy(got, c.start, (size_t)(c.K * c.K) * sizeof *got);
        T_STATUS_OK(ref_cuda_exact(&be, &x, c.x.data, c.T, c.K));
        T_STATUS_OK(op_gram(&be, got, &x, DTYPE_F32));
        if (!ref_gram_agrees(&c, got))
            check_fail(__FILE__, __LINE__, "size %d", i);
        backend_rewind(&be, mark);
        arena_close(&c.arena);
    }
    backend_close(&be);
}
