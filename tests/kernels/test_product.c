/* test_product.c - general products against double: every transposition, sizes on both
 * sides of a tile (256) and of oneDNN's own blocks, rows apart. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_product.h"

static const ProductSize SIZES[] = {
    {1, 1, 1, 1, 0},       {3, 257, 5, -1, 1},   {255, 2, 33, 1, 1},     {256, 256, 64, 1, 0},
    {257, 300, 17, 2, -3}, {40, 600, 129, 1, 0}, {513, 1, 70, 0.5f, 1},  {1, 500, 1000, -1, 1},
    {70, 31, 0, 1, 0.5f},  {9, 20, 0, 1, 0},     {5, 300, 40, 0, -2},    {17, 48, 700, 1, 1},
};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

TEST(product_agrees_with_double)
{
    Backend be;
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    for (int i = 0; i < 4 * N_SIZES; i++) {
        RefProduct c;
        ref_product_open(&c, &SIZES[i % N_SIZES], i % N_SIZES, i / N_SIZES % 2,
                         i / N_SIZES / 2);
        c.p.c = ref_guarded(&c.arena, c.p.m * c.p.ldc);
        memcpy(c.p.c, c.start, (size_t)(c.p.m * c.p.ldc) * sizeof *c.p.c);
        T_STATUS_OK(op_product(&be, &c.p));
        if (!ref_guards_hold(c.p.c, c.p.m * c.p.ldc) || !ref_product_agrees(&c, c.p.c))
            check_fail(__FILE__, __LINE__, "size %d, a_t %d, b_t %d", i % N_SIZES, c.p.a_t,
                       c.p.b_t);
        arena_close(&c.arena);
    }
    backend_close(&be);
}

/* Threads of ours and of the environment, and where the matrices start. */
TEST(product_bits_depend_on_the_shape_alone)
{
    enum { M = 300, N = 530, K = 333 };
    Arena arena = {0};
    const float *a = ref_normal(&arena, M, K, 1).data, *b = ref_normal(&arena, K, N, 2).data;
    float *first = ref_empty(&arena, M, N).data;
    int    before = omp_get_max_threads();
    for (int i = 0; i < 6; i++) {
        Backend be;
        float *c = i ? ref_empty(&arena, M, N + 1).data : first;
        float *moved = (float *)ref_empty(&arena, M + 1, K).data + i;
        memcpy(moved, a, M * K * sizeof *a);
        T_STATUS_OK(backend_open(&be, "cpu", 1 + i % 3));
        omp_set_num_threads(1 + i);
        MatrixProduct p = {M, N, K, 1, 0, moved, b, K, N, N, false, false, c + i % 2};
        T_STATUS_OK(op_product(&be, &p));
        T_OK(omp_get_max_threads() == 1 + i);
        T_OK(memcmp(p.c, first, M * N * sizeof *first) == 0);
        backend_close(&be);
    }
    omp_set_num_threads(before);
    arena_close(&arena);
}

TEST(product_passes_nan_and_infinity)
{
    enum { M = 270, N = HURT_N, K = HURT_K };
    Arena   arena = {0};
    Backend be;
    float  *a, *b, *c;
    ref_product_hurt(&arena, M, &a, &b, &c);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    MatrixProduct p = {M, N, K, 1, 1, a, b, K, N, N, false, false, c};
    T_STATUS_OK(op_product(&be, &p));
    T_OK(ref_product_hurts(c, b, M));
    p.alpha = p.beta = 0;  // reads neither
    T_STATUS_OK(op_product(&be, &p));
    for (int64_t i = 0; i < M * N; i++)
        T_OK(c[i] == 0);
    backend_close(&be);
    arena_close(&arena);
}

/* oneDNN reads its limit once a process. */
TEST(product_holds_on_older_processors)
{
    const char *const LIMITS[] = {"AVX512_CORE", "AVX2", "SSE41"};
    char              command[320], self[200] = "";
    if (getenv("DQ_OLDER_PROCESSOR"))
        return;
    T_OK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "DQ_OLDER_PROCESSOR=1 ONEDNN_MAX_CPU_ISA=%s '%s' product > /dev/null",
                 LIMITS[i], self);
        T_OK(system(command) == 0);
    }
}

TEST(product_checks_sizes)
{
    Backend be;
    float   x[12] = {0};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    const MatrixProduct GOOD = {2, 3, 4, 1, 0, x, x, 4, 3, 3, false, false, x};
    MatrixProduct p = GOOD;
    p.lda = 3;
    T_FAILS(op_product(&be, &p), ERR_SHAPE, "product: a is [2,4] with rows 3 apart");
    p.a_t = true;  // [4,2]
    p.ldb = 2;
    T_FAILS(op_product(&be, &p), ERR_SHAPE, "product: b is [4,3] with rows 2 apart");
    p = GOOD;
    p.b_t = true;
    T_FAILS(op_product(&be, &p), ERR_SHAPE, "product: b is [3,4] with rows 3 apart");
    p = GOOD;
    p.ldc = 2;
    T_FAILS(op_product(&be, &p), ERR_SHAPE, "product: c is [2,3] with rows 2 apart");
    p = GOOD;
    p.m = -1;
    T_FAILS(op_product(&be, &p), ERR_SHAPE, "product: a is [-1,4]");
    p = GOOD;
    p.lda = INT64_MAX / 4;
    T_FAILS(op_product(&be, &p), ERR_RANGE, "product: a [2,2305843009213693951] does not fit");
    p = GOOD;
    p.m = 0;
    x[0] = NAN;
    T_STATUS_OK(op_product(&be, &p));
    T_OK(isnan(x[0]));
    backend_close(&be);
}
