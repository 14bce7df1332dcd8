/* test_gram.c - gram matrices against double: T on both sides of a part (512 rows) and of what
 * is packed at once, K of a tile (8 x 48), of a panel (16) and of a block (96). */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_gram.h"
#include "tests/kernels/ref_ops.h"

static const struct {
    int64_t T, K;
} SIZES[] = {{1, 1},    {3, 8},    {5, 9},   {511, 7},  {512, 16},  {513, 47},  {40, 48},
             {700, 49}, {30, 95},  {64, 96}, {600, 97}, {1100, 130}, {3, 200},  {0, 20},
             {1540, 1091}, {5, 0}};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

/* *got = start + x^T x, with room for one more number behind it that has to stay. */
static Status add(double **got, RefGram *c, int n_threads, Dtype dtype)
{
    size_t  n = (size_t)(c->K * c->K);
    Backend be;
    *got = arena_alloc(&c->arena, (int64_t)n + 1, sizeof **got);
    memcpy(*got, c->start, n * sizeof **got);
    (*got)[n] = 1234;
    TRY(backend_open(&be, "cpu", n_threads));
    Status s = op_gram(&be, *got, &c->x, dtype);
    backend_close(&be);
    return s == OK && (*got)[n] != 1234 ? STATUS(ERR_RANGE, "written behind the gram") : s;
}

TEST(gram_agrees_with_double)
{
    REF_EACH_ISA(isa)
    {
        for (int i = 0; i < 2 * N_SIZES; i++) {
            int64_t T = SIZES[i % N_SIZES].T, K = SIZES[i % N_SIZES].K;
            Dtype   dtype = i < N_SIZES ? DTYPE_F32 : DTYPE_BF16;
            RefGram c;
            double *got;
            ref_gram_open(&c, T, K, 1 + (uint64_t)i);
            T_STATUS_OK(add(&got, &c, 2, dtype));
            if (dtype == DTYPE_BF16)
                ref_gram_round(&c);
            if (!ref_gram_agrees(&c, got))
                check_fail(__FILE__, __LINE__, "%s, size %d of %s", cpu_isa_name(isa),
                           i % N_SIZES, dtype_name(dtype));
            arena_close(&c.arena);
        }
    }
}

TEST(gram_bits_do_not_depend_on_threads)
{
    for (int i = 0; i < 2 * N_SIZES; i++) {
        Dtype   dtype = i < N_SIZES ? DTYPE_F32 : DTYPE_BF16;
        RefGram c;
        double *one, *many;
        ref_gram_open(&c, SIZES[i % N_SIZES].T, SIZES[i % N_SIZES].K, 3);
        T_STATUS_OK(add(&one, &c, 1, dtype));
        for (int threads = 2; threads <= 3; threads++) {
            T_STATUS_OK(add(&many, &c, threads, dtype));
            for (int64_t k = 0; k < c.K * c.K; k++)
                T_OK(k / c.K > k % c.K || one[k] == many[k]);
        }
        arena_close(&c.arena);
    }
}

/* To the bit: one chain a part, each step rounded once where there is a fused multiply-add. */
TEST(gram_is_one_chain_a_part)
{
    enum { T = 1030, K = 53 };
    REF_EACH_ISA(isa)
    {
        RefGram c;
        double *got;
        ref_gram_open(&c, T, K, 11);
        const float *x = c.x.data;
        T_STATUS_OK(add(&got, &c, 2, DTYPE_F32));
        for (int i = 0; i < K; i++)
            for (int j = i; j < K; j++) {
                double want = c.start[i * K + j];
                for (int first = 0; first < T; first += GRAM_PART) {
                    float part = 0;
                    for (int t = first; t < T && t < first + GRAM_PART; t++) {
                        float a = x[t * K + i], b = x[t * K + j];
                        part = isa == CPU_PLAIN ? part + a * b : fmaf(a, b, part);
                    }
                    want += (double)part;
                }
                T_NEAR(got[i * K + j], want, 0);
            }
        arena_close(&c.arena);
    }
}

TEST(gram_passes_nan_and_infinity)
{
    enum { T = 599, K = 100 };
    REF_EACH_ISA(isa)
    {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            RefGram c;
            double *got;
            ref_gram_open(&c, T, K, 4);
            ((float *)c.x.data)[598 * K + 99] = NAN;
            ((float *)c.x.data)[3 * K + 50] = INFINITY;
            T_STATUS_OK(add(&got, &c, 2, bf16 ? DTYPE_BF16 : DTYPE_F32));
            for (int i = 0; i < K; i++)
                for (int j = i; j < K; j++) {
                    double v = got[i * K + j];
                    bool   by_zero = (i == 5 && j == 50) || j == 99;   // 0 times infinity
                    T_OK(by_zero ? isnan(v) : i == 50 || j == 50 ? isinf(v) : isfinite(v));
                }
            arena_close(&c.arena);
        }
    }
}

TEST(gram_checks_its_input)
{
    Backend be;
    double  gram[4] = {1, 2, 3, 4};
    float   x[4] = {0};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    Tensor t = tensor_1d(DTYPE_F32, x, 4);
    T_FAILS(op_gram(&be, gram, &t, DTYPE_F32), ERR_SHAPE, "gram: x");
    t = tensor_2d(DTYPE_F32, x, 2, 2);
    T_FAILS(op_gram(&be, gram, &t, DTYPE_F16), ERR_UNSUPPORTED, "products in F16");
    backend_close(&be);
}

/* --- memory that is lent --- */

TEST(backend_lends_the_hosts_memory)
{
    Backend be;
    Tensor  t;
    float   host[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_STATUS_OK(backend_tensor(&be, &t, 2, (int64_t[]){2, 3}));
    T_STATUS_OK(backend_lend(&be, &t, host));
    T_OK(t.data == host && backend_host(&be, &t) == host);
    T_STATUS_OK(op_add(&be, &t, &t));
    T_STATUS_OK(backend_return(&be, host, &t));
    T_STATUS_OK(backend_return(&be, back, &t));
    for (int i = 0; i < 6; i++)
        T_OK(host[i] == 2 * (float)(i + 1) && back[i] == host[i]);
    backend_close(&be);
}
