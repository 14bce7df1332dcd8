/* test_norm.c - RMSNorm against double, C on both sides of 16 lanes. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

static const int64_t WIDTHS[] = {1, 3, 15, 16, 17, 31, 32, 33, 576, 4099};

static void check_width(int64_t C)
{
    enum { T = 13 };
    const float eps = 1e-5f;
    Arena       arena = {0};
    Backend     be;
    Tensor      x = ref_normal(&arena, T, C, 3), w = ref_normal(&arena, 1, C, 4);
    Tensor      y = ref_empty(&arena, T, C), w1 = tensor_1d(DTYPE_F32, w.data, C);
    double     *want = arena_alloc(&arena, C, sizeof *want);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_rmsnorm(&be, &y, &x, &w1, eps));
    for (int64_t t = 0; t < T; t++) {
        double loss = ref_rmsnorm(want, (float *)x.data + t * C, w.data, C, eps);
        T_NEAR(ref_worst((float *)y.data + t * C, want, C), 0, 2 * loss + 1e-7);
    }
    T_OK(ref_guards_hold(y.data, T * C));
    T_STATUS_OK(op_rmsnorm(&be, &x, &x, &w1, eps));  // in place
    T_OK(memcmp(x.data, y.data, tensor_bytes(&y)) == 0);
    backend_close(&be);
    arena_close(&arena);
}

TEST(rmsnorm_agrees_with_double)
{
    REF_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        check_width(WIDTHS[i]);
}

TEST(rmsnorm_bits_depend_neither_on_threads_nor_on_the_batch)
{
    enum { T = 64, C = 1025 };
    REF_EACH_ISA(isa)
    {
        Arena   arena = {0};
        Backend one, two;
        Tensor  x = ref_normal(&arena, T, C, 3), w = ref_normal(&arena, 1, C, 4);
        Tensor  a = ref_empty(&arena, T, C), b = ref_empty(&arena, 1, C);
        Tensor  w1 = tensor_1d(DTYPE_F32, w.data, C);
        T_STATUS_OK(backend_open(&one, "cpu", 1));
        T_STATUS_OK(backend_open(&two, "cpu", 2));
        T_STATUS_OK(op_rmsnorm(&two, &a, &x, &w1, 1e-6f));
        Tensor last = tensor_2d(DTYPE_F32, (float *)x.data + (T - 1) * C, 1, C);
        T_STATUS_OK(op_rmsnorm(&one, &b, &last, &w1, 1e-6f));
        T_OK(memcmp((float *)a.data + (T - 1) * C, b.data, tensor_bytes(&b)) == 0);
        backend_close(&one);
        backend_close(&two);
        arena_close(&arena);
    }
}

/* Squares of large values overflow a float; outliers are our subject. */
TEST(rmsnorm_of_large_zero_and_nan_rows)
{
    REF_EACH_ISA(isa)
    {
        enum { C = 20 };
        Arena   arena = {0};
        Backend be;
        Tensor  x = ref_empty(&arena, 4, C), y = ref_empty(&arena, 4, C);
        Tensor  w = ref_empty(&arena, 1, C), w1 = tensor_1d(DTYPE_F32, w.data, C);
        float  *px = x.data, *py = y.data, *pw = w.data;
        for (int i = 0; i < C; i++) {
            pw[i] = 1;
            px[i] = i % 2 ? 1e30f : -1e30f;
            px[C + i] = 0;
            px[2 * C + i] = 1;
            px[3 * C + i] = 2;
        }
        px[2 * C + 7] = NAN;
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_rmsnorm(&be, &y, &x, &w1, 1e-5f));
        for (int i = 0; i < C; i++) {
            T_NEAR(py[i], i % 2 ? 1 : -1, 1e-6);
            T_NEAR(py[C + i], 0, 0);
            T_OK(isnan(py[2 * C + i]));
            T_NEAR(py[3 * C + i], 1, 1e-5);
        }
        backend_close(&be);
        arena_close(&arena);
    }
}

TEST(rmsnorm_checks_shapes)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_normal(&arena, 3, 4, 1), y = ref_empty(&arena, 3, 4);
    Tensor  w = tensor_1d(DTYPE_F32, x.data, 4), w5 = tensor_1d(DTYPE_F32, x.data, 5);
    Tensor  wide = ref_empty(&arena, 3, 5), none = ref_empty(&arena, 3, 0);
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_FAILS(op_rmsnorm(&be, &y, &x, &w5, 0), ERR_SHAPE,
            "rmsnorm: w is F32 [5], expected F32 [4]");
    T_FAILS(op_rmsnorm(&be, &wide, &x, &w, 0), ERR_SHAPE, "rmsnorm: y is F32 [3,5]");
    T_FAILS(op_rmsnorm(&be, &none, &none, &w, 0), ERR_SHAPE, "rows of 0 values");
    T_FAILS(op_rmsnorm(&be, &y, &x, &w, NAN), ERR_RANGE, "eps is nan");
    T_FAILS(op_rmsnorm(&be, &y, &x, &w, -1), ERR_RANGE, "eps is -1");
    backend_close(&be);
    arena_close(&arena);
}
