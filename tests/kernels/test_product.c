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

static const struct {
    int64_t m, n, k;
    float   alpha, beta;
} SIZES[] = {
    {1, 1, 1, 1, 0},       {3, 257, 5, -1, 1},   {255, 2, 33, 1, 1},     {256, 256, 64, 1, 0},
    {257, 300, 17, 2, -3}, {40, 600, 129, 1, 0}, {513, 1, 70, 0.5f, 1},  {1, 500, 1000, -1, 1},
    {70, 31, 0, 1, 0.5f},  {9, 20, 0, 1, 0},     {5, 300, 40, 0, -2},    {17, 48, 700, 1, 1},
};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

typedef struct {
    Arena         arena;
    MatrixProduct p;
    float        *start;   // c before
    double       *want;
    double        loss;    // of a plain float loop
} Case;

/* What op_product shall do, in double and in a plain float loop. Rows are apart by more
 * than they hold; between them are the numbers of ref_normal, which have to stay. */
static void reference(Case *c)
{
    const MatrixProduct *p = &c->p;
    c->loss = 0;
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

static void case_open(Case *c, int i, bool a_t, bool b_t)
{
    int64_t m = SIZES[i].m, n = SIZES[i].n, k = SIZES[i].k, ldc = n + i % 3;
    int64_t lda = (a_t ? m : k) + i % 4, ldb = (b_t ? k : n) + 3 * (i % 2);
    *c = (Case){0};
    const float *a = ref_normal(&c->arena, a_t ? k : m, lda, 1 + (uint64_t)i).data;
    const float *b = ref_normal(&c->arena, b_t ? n : k, ldb, 50 + (uint64_t)i).data;
    float       *out = ref_normal(&c->arena, m, ldc, 90 + (uint64_t)i).data;
    c->p = (MatrixProduct){m, n, k, SIZES[i].alpha, SIZES[i].beta, a, b, lda, ldb, ldc, a_t,
                           b_t, out};
    c->start = arena_alloc(&c->arena, m * ldc, sizeof *c->start);
    c->want = arena_alloc(&c->arena, m * ldc, sizeof *c->want);
    for (int64_t x = 0; x < m * ldc; x++)
        c->want[x] = c->start[x] = out[x];
    reference(c);
    for (int64_t x = 0; x < m * ldc && c->p.beta == 0; x++)
        if (x % ldc < n)
            out[x] = NAN;
}

static bool agrees(const Case *c)
{
    const MatrixProduct *p = &c->p;
    double worst = ref_worst(p->c, c->want, p->m * p->ldc);
    if (!(worst <= 2 * c->loss + 1e-6) || !ref_guards_hold(p->c, p->m * p->ldc))
        return false;
    for (int64_t x = 0; x < p->m * p->ldc; x++)
        if (x % p->ldc >= p->n && p->c[x] != c->start[x])
            return false;
    return true;
}

TEST(product_agrees_with_double)
{
    Backend be;
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    for (int i = 0; i < 4 * N_SIZES; i++) {
        Case c;
        case_open(&c, i % N_SIZES, i / N_SIZES % 2, i / N_SIZES / 2);
        T_STATUS_OK(op_product(&be, &c.p));
        if (!agrees(&c))
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
    enum { M = 270, N = 40, K = 50 };
    Arena   arena = {0};
    Backend be;
    float  *a = ref_normal(&arena, M, K, 1).data, *b = ref_normal(&arena, K, N, 2).data;
    float  *c = ref_normal(&arena, M, N, 3).data;
    a[268 * K + 49] = NAN;
    a[3 * K] = INFINITY;
    b[20 * N + 39] = NAN;
    c[5 * N + 6] = NAN;
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    MatrixProduct p = {M, N, K, 1, 1, a, b, K, N, N, false, false, c};
    T_STATUS_OK(op_product(&be, &p));
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float v = c[i * N + j];
            if (i == 268 || j == 39 || (i == 5 && j == 6))
                T_OK(isnan(v));
            else if (i == 3)
                T_OK(isinf(v) && (v > 0) == (b[j] > 0));
            else
                T_OK(isfinite(v));
        }
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
