/* test_poly_glu.c - PolyNorm against double, small rows and huge values. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

static const float POLY[4] = {0.4f, -0.7f, 1.3f, 0.05f};

/* The op stays in double: what is left is the last rounding, 2^-24 of the result, and 2^-50
 * of its terms. */
static void check_row(int64_t n, float size)
{
    Arena   arena = {0};
    Backend be;
    Tensor  gate = ref_normal(&arena, 3, n, 5), up = ref_normal(&arena, 3, n, 6);
    Tensor  got = ref_empty(&arena, 3, n);
    float  *g = gate.data, *u = up.data, *y = got.data;
    double *want = arena_alloc(&arena, n, sizeof *want);
    for (int64_t i = 0; i < 3 * n; i++)
        g[i] *= size;
    g[n - 1] *= 30;   // an outlier
    memcpy(y, g, tensor_bytes(&gate));
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_poly_glu(&be, &got, &up, POLY));
    for (int64_t i = 0; i < 3 * n; i++) {
        if (i % n == 0)
            ref_poly_glu(want, g + i, u + i, POLY, n);
        double terms = 3 * sqrt((double)n) * fabs((double)u[i]);
        T_NEAR((double)y[i], want[i % n], fabs(want[i % n]) * 0x1p-24 + terms * 0x1p-50);
    }
    T_OK(ref_guards_hold(y, 3 * n));
    backend_close(&be);
    arena_close(&arena);
}

TEST(poly_glu_agrees_with_double)
{
    const int64_t WIDTHS[] = {1, 3, 7, 8, 15, 16, 17, 33, 100, 5120};
    const float   SIZES[] = {1, 1e-3f, 50, 3e8f};   // g^3 overflows half, g^6 float
    REF_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (size_t j = 0; j < sizeof SIZES / sizeof *SIZES; j++)
            check_row(WIDTHS[i], SIZES[j]);
}

/* A row of one magnitude: each N is 1 in size. The order of poly is cube, square, line. */
TEST(poly_glu_by_hand)
{
    REF_EACH_ISA(isa)
    for (float size = 2; size < 1e38f; size *= 1e6f) {
        Arena   arena = {0};
        Backend be;
        Tensor  gate = ref_empty(&arena, 1, 18), up = ref_empty(&arena, 1, 18);
        float  *g = gate.data;
        for (int i = 0; i < 18; i++) {
            g[i] = i % 2 ? size : -size;
            ((float *)up.data)[i] = 2;
        }
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_poly_glu(&be, &gate, &up, (float[]){1, 10, 100, 1000}));
        for (int i = 0; i < 18; i++)   // 1e-6 beside size^2 / 2
            T_NEAR(g[i], i % 2 ? 2222 : 2 * (1010 - 101), 2e-3);
        backend_close(&be);
        arena_close(&arena);
    }
}

TEST(poly_glu_of_zeros_is_its_constant)
{
    REF_EACH_ISA(isa)
    {
        Arena   arena = {0};
        Backend be;
        Tensor  gate = ref_empty(&arena, 1, 21), up = ref_normal(&arena, 1, 21, 6);
        memset(gate.data, 0, tensor_bytes(&gate));
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_poly_glu(&be, &gate, &up, POLY));
        for (int i = 0; i < 21; i++)
            T_OK(((float *)gate.data)[i] == POLY[3] * ((float *)up.data)[i]);
        backend_close(&be);
        arena_close(&arena);
    }
}

TEST(poly_glu_shows_nan_and_infinity)
{
    enum { F = 19 };
    REF_EACH_ISA(isa)
    {
        Arena   arena = {0};
        Backend be;
        Tensor  gate = ref_normal(&arena, 3, F, 5), up = ref_normal(&arena, 3, F, 6);
        float  *g = gate.data;
        g[18] = NAN;
        g[F + 2] = -INFINITY;
        ((float *)up.data)[2 * F + 3] = NAN;
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_poly_glu(&be, &gate, &up, POLY));
        for (int i = 0; i < F; i++) {
            T_OK(isnan(g[i]));
            T_OK(i == 2 ? isnan(g[F + i]) : isfinite(g[F + i]));
            T_OK(i == 3 ? isnan(g[2 * F + i]) : isfinite(g[2 * F + i]));
        }
        backend_close(&be);
        arena_close(&arena);
    }
}

/* Same bits alone, in a batch, with other threads and other instruction sets. */
TEST(poly_glu_bits_depend_on_the_row_alone)
{
    enum { T = 40, F = 1027 };
    Arena  arena = {0};
    Tensor first = ref_empty(&arena, T, F), up = ref_normal(&arena, T, F, 2);
    bool   started = false;
    REF_EACH_ISA(isa)
    for (int threads = 1; threads <= 3; threads++) {
        Backend be;
        Tensor  y = ref_normal(&arena, T, F, 1), z = ref_normal(&arena, T, F, 1);
        Tensor  row = tensor_2d(DTYPE_F32, (float *)z.data + 7 * F, 1, F);
        Tensor  up_row = tensor_2d(DTYPE_F32, (float *)up.data + 7 * F, 1, F);
        T_STATUS_OK(backend_open(&be, "cpu", threads));
        T_STATUS_OK(op_poly_glu(&be, &y, &up, POLY));
        T_STATUS_OK(op_poly_glu(&be, &row, &up_row, POLY));
        T_OK(memcmp(row.data, (float *)y.data + 7 * F, tensor_bytes(&row)) == 0);
        if (!started)
            memcpy(first.data, y.data, tensor_bytes(&y));
        T_OK(memcmp(first.data, y.data, tensor_bytes(&y)) == 0);
        started = true;
        backend_close(&be);
    }
    arena_close(&arena);
}

TEST(poly_glu_checks_shapes)
{
    Arena   arena = {0};
    Backend be;
    Tensor  gate = ref_normal(&arena, 2, 3, 1), up = ref_normal(&arena, 3, 2, 1);
    Tensor  none = ref_empty(&arena, 2, 0);
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_FAILS(op_poly_glu(&be, &gate, &up, POLY), ERR_SHAPE,
            "poly_glu: up is F32 [3,2], expected F32 [2,3]");
    T_FAILS(op_poly_glu(&be, &none, &none, POLY), ERR_SHAPE, "gate has rows of 0 values");
    backend_close(&be);
    arena_close(&arena);
}
