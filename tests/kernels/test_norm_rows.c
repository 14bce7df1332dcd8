/* test_norm_rows.c - op_norm: RMS and LayerNorm, whole rows and heads, against double. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_norm.h"
#include "tests/kernels/ref_ops.h"

enum { T = 5 };
static const float EPS = 1e-5f;

static void check_shape(const NormShape *s)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_norm_input(&arena, s, T), y = ref_empty(&arena, T, x.shape[1]);
    Norm    n = ref_norm_of(&arena, s);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_norm(&be, &y, &x, s->heads, &n));
    T_OK(ref_norm_agrees(y.data, &x, &n, s));
    T_OK(ref_guards_hold(y.data, tensor_count(&y)));
    T_STATUS_OK(op_norm(&be, &x, &x, s->heads, &n));  // in place
    T_OK(memcmp(x.data, y.data, tensor_bytes(&y)) == 0);
    backend_close(&be);
    arena_close(&arena);
}

TEST(norm_agrees_with_double)
{
    const int64_t WIDTHS[] = {1, 3, 15, 16, 17, 31, 33, 100, 128, 5120};
    REF_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (int bits = 0; bits < 16; bits++) {
            NormShape s = {WIDTHS[i], WIDTHS[i] > 1000 ? 1 : 3, bits & 1, bits & 2,
                       (bits & 5) == 5, bits & 8, 0};
            check_shape(&s);
        }
}

/* There x itself has three digits of its spread, which are exact; squares in float would
 * have none. */
TEST(layernorm_survives_a_mean_of_10000_spreads)
{
    REF_EACH_ISA(isa)
    for (int64_t width = 64; width <= 4096; width *= 8) {
        NormShape s = {width, 1, true, true, true, false, 1e4f};
        check_shape(&s);
    }
}

TEST(layernorm_of_equal_values_is_its_bias)
{
    enum { C = 37 };
    REF_EACH_ISA(isa)
    {
        Arena   arena = {0};
        Backend be;
        Tensor  x = ref_empty(&arena, 1, C), y = ref_empty(&arena, 1, C);
        Norm    n = ref_norm_of(&arena, &(NormShape){C, 1, true, true, true, false, 0});
        for (int i = 0; i < C; i++)
            ((float *)x.data)[i] = 12345.678f;
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_norm(&be, &y, &x, 1, &n));
        /* mean - x is what rounding of 37 additions leaves: 37 2^-53 x / sqrt(eps) */
        for (int i = 0; i < C; i++)
            T_NEAR(((float *)y.data)[i], ((float *)n.b.data)[i], 2e-7);
        backend_close(&be);
        arena_close(&arena);
    }
}

TEST(rms_of_one_head_is_rmsnorm)
{
    enum { C = 1027 };
    REF_EACH_ISA(isa)
    {
        Arena   arena = {0};
        Backend be;
        Tensor  x = ref_normal(&arena, T, C, 7);
        Tensor  a = ref_empty(&arena, T, C), b = ref_empty(&arena, T, C);
        Norm    n = ref_norm_of(&arena, &(NormShape){C, 1, false, true, false, false, 0});
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_norm(&be, &a, &x, 1, &n));
        T_STATUS_OK(op_rmsnorm(&be, &b, &x, &n.w, n.eps));
        T_OK(memcmp(a.data, b.data, tensor_bytes(&a)) == 0);
        backend_close(&be);
        arena_close(&arena);
    }
}

/* Same bits alone, in a batch, with other threads and other instruction sets. */
TEST(norm_bits_depend_on_the_head_alone)
{
    enum { H = 8, W = 133, C = H * W, ROWS = 64 };
    Arena  arena = {0};
    Tensor x = ref_normal(&arena, ROWS, C, 3), first = ref_empty(&arena, ROWS, C);
    Tensor y = ref_empty(&arena, ROWS, C), last = ref_empty(&arena, 1, W);
    for (int centred = 0; centred < 2; centred++) {
        Norm n = ref_norm_of(&arena, &(NormShape){W, 1, centred, true, centred, false, 0});
        bool started = false;
        REF_EACH_ISA(isa)
        for (int threads = 1; threads <= 3; threads++) {
            Backend be;
            Tensor *to = started ? &y : &first;
            Tensor  head = tensor_2d(DTYPE_F32, (float *)x.data + ROWS * C - W, 1, W);
            T_STATUS_OK(backend_open(&be, "cpu", threads));
            T_STATUS_OK(op_norm(&be, to, &x, H, &n));
            T_STATUS_OK(op_norm(&be, &last, &head, 1, &n));
            T_OK(memcmp(to->data, first.data, tensor_bytes(&first)) == 0);
            T_OK(memcmp(last.data, (float *)to->data + ROWS * C - W, tensor_bytes(&last)) == 0);
            started = true;
            backend_close(&be);
        }
    }
    arena_close(&arena);
}

TEST(norm_shows_nan_in_its_head_only)
{
    enum { W = 19, H = 3 };
    REF_EACH_ISA(isa)
    for (int centred = 0; centred < 2; centred++) {
        Arena   arena = {0};
        Backend be;
        Tensor  x = ref_normal(&arena, 1, H * W, 5), y = ref_empty(&arena, 1, H * W);
        Norm    n = {.eps = EPS, .centred = centred};
        float  *px = x.data, *py = y.data;
        px[W + 17] = NAN;
        px[2 * W + 3] = INFINITY;
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_norm(&be, &y, &x, H, &n));
        for (int i = 0; i < W; i++) {
            T_OK(isfinite(py[i]) && isnan(py[W + i]));
            T_OK(centred || i == 3 ? isnan(py[2 * W + i]) : py[2 * W + i] == 0);
        }
        backend_close(&be);
        arena_close(&arena);
    }
}

/* Squares of large values overflow a float. */
TEST(norm_of_large_values)
{
    REF_EACH_ISA(isa)
    for (int centred = 0; centred < 2; centred++) {
        Arena   arena = {0};
        Backend be;
        Tensor  x = ref_empty(&arena, 1, 20), y = ref_empty(&arena, 1, 20);
        Norm    n = {.eps = EPS, .centred = centred};
        for (int i = 0; i < 20; i++)
            ((float *)x.data)[i] = i % 2 ? 3e38f : -3e38f;
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_norm(&be, &y, &x, 1, &n));
        for (int i = 0; i < 20; i++)
            T_NEAR(((float *)y.data)[i], i % 2 ? 1 : -1, 1e-6);
        backend_close(&be);
        arena_close(&arena);
    }
}

TEST(norm_of_no_rows)
{
    Arena   arena = {0};
    Backend be;
    Tensor  none = ref_empty(&arena, 0, 8);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_norm(&be, &none, &none, 2, &(Norm){.eps = EPS, .centred = true}));
    backend_close(&be);
    arena_close(&arena);
}

TEST(norm_checks_shapes)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_normal(&arena, 3, 8, 1), y = ref_empty(&arena, 3, 8);
    Tensor  wide = ref_empty(&arena, 3, 9), none = ref_empty(&arena, 3, 0);
    Tensor  v4 = tensor_1d(DTYPE_F32, x.data, 4), v5 = tensor_1d(DTYPE_F32, x.data, 5);
    Norm    n = {.w = v4, .b = v4, .centred = true};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_STATUS_OK(op_norm(&be, &y, &x, 2, &n));
    T_FAILS(op_norm(&be, &wide, &x, 2, &n), ERR_SHAPE,
            "norm: y is F32 [3,9], expected F32 [3,8]");
    T_FAILS(op_norm(&be, &y, &x, 3, &n), ERR_SHAPE, "norm: rows of 8 in 3 heads");
    T_FAILS(op_norm(&be, &y, &x, 0, &n), ERR_SHAPE, "norm: rows of 8 in 0 heads");
    T_FAILS(op_norm(&be, &none, &none, 1, &n), ERR_SHAPE, "norm: x has rows of 0 values");
    T_FAILS(op_norm(&be, &y, &x, 1, &n), ERR_SHAPE, "norm: w is F32 [4], expected F32 [8]");
    n.b = v5;
    T_FAILS(op_norm(&be, &y, &x, 2, &n), ERR_SHAPE,
            "norm: b is F32 [5], expected F32 [4] or one value for each of a row");
    n.b = v4;
    n.centred = false;
    T_FAILS(op_norm(&be, &y, &x, 2, &n), ERR_UNSUPPORTED, "norm: b without centring");
    n = (Norm){.eps = -1};
    T_FAILS(op_norm(&be, &y, &x, 2, &n), ERR_RANGE, "norm: eps is -1");
    n.eps = NAN;
    T_FAILS(op_norm(&be, &y, &x, 2, &n), ERR_RANGE, "norm: eps is nan");
    backend_close(&be);
    arena_close(&arena);
}
