/* test_cuda_norm.c - norms and PolyNorm, GPU against double: widths on both sides of four
 * values, a warp's and a block's head; tensors that start anywhere. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_norm.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

enum { T = 3 };
static const float EPS = 1e-5f;

/* The same norm with its vectors on the GPU. */
static Status send(Backend *be, Norm *gpu, const Norm *host, int64_t shift)
{
    const Tensor *from[2] = {&host->w, &host->b};
    Tensor       *to[2] = {&gpu->w, &gpu->b};
    *gpu = *host;
    for (int i = 0; i < 2; i++) {
        Tensor on;
        if (!from[i]->data)
            continue;
        TRY(ref_cuda_tensor(be, &on, from[i]->data, 1, tensor_count(from[i]), shift));
        to[i]->data = on.data;
    }
    return OK;
}

static void check_shape(Backend *be, const NormShape *s, int64_t shift)
{
    Arena   arena = {0};
    Tensor  in = ref_norm_input(&arena, s, T), x, y;
    int64_t C = in.shape[1];
    float  *got = ref_guarded(&arena, T * C), *again = ref_guarded(&arena, T * C);
    Norm    host = ref_norm_of(&arena, s), gpu;
    bool    whole;
    T_STATUS_OK(send(be, &gpu, &host, shift));
    T_STATUS_OK(ref_cuda_tensor(be, &x, in.data, T, C, shift));
    T_STATUS_OK(ref_cuda_empty(be, &y, T, C, (shift + 1) % 4));
    T_STATUS_OK(op_norm(be, &y, &x, s->heads, &gpu));
    T_STATUS_OK(ref_cuda_read(be, got, &y, &whole));
    T_OK(whole && ref_norm_agrees(got, &in, &host, s));
    T_STATUS_OK(op_norm(be, &x, &x, s->heads, &gpu));  // in place
    T_STATUS_OK(ref_cuda_read(be, again, &x, &whole));
    T_OK(whole && memcmp(got, again, (size_t)(T * C) * sizeof *got) == 0);
    arena_close(&arena);
}

TEST(norm_agrees_with_double)
{
    static const int64_t WIDTHS[] = {1,   3,   4,   33,  128,  130,  511,
                                     512, 513, 516, 1024, 1027, 4099};
    Backend be;
    T_GPU(&be);
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (int bits = 0; bits < 16; bits++) {
            ArenaMark mark = backend_mark(&be);
            NormShape s = {WIDTHS[i], WIDTHS[i] > 1000 ? 1 : 3, bits & 1, bits & 2,
                           (bits & 5) == 5, bits & 8, 0};
            check_shape(&be, &s, (int64_t)i % 4);
            backend_rewind(&be, mark);
        }
    backend_close(&be);
}

/* There x itself has three digits of its spread, which are exact; squares in float would
 * have none. */
TEST(layernorm_survives_a_mean_of_10000_spreads)
{
    Backend be;
    T_GPU(&be);
    for (int64_t width = 64; width <= 4096; width *= 8) {
        NormShape s = {width, 1, true, true, true, false, 1e4f};
        check_shape(&be, &s, 0);
    }
    backend_close(&be);
}

/* Alone, in a batch, wherever it starts: odd rows begin at any float. */
TEST(norm_bits_depend_on_the_head_alone)
{
    enum { H = 4, ROWS = 5, MOST = 521 };
    Backend be;
    T_GPU(&be);
    for (int64_t W = 131; W <= MOST; W += MOST - 131)
        for (int centred = 0; centred < 2; centred++) {
            Arena   arena = {0};
            int64_t C = H * W;
            Tensor  in = ref_normal(&arena, ROWS, C, 3), x, head;
            float  *all = ref_guarded(&arena, ROWS * C), one[MOST];
            bool    whole;
            Norm    n = {.eps = EPS, .centred = centred};
            T_STATUS_OK(ref_cuda_tensor(&be, &x, in.data, ROWS, C, 0));
            T_STATUS_OK(op_norm(&be, &x, &x, H, &n));
            T_STATUS_OK(ref_cuda_read(&be, all, &x, &whole));
            for (int64_t h = 0; h < ROWS * H; h += 3) {
                T_STATUS_OK(ref_cuda_tensor(&be, &head, (float *)in.data + h * W, 1, W, h % 4));
                T_STATUS_OK(op_norm(&be, &head, &head, 1, &n));
                T_STATUS_OK(ref_cuda_read(&be, one, &head, &whole));
                T_OK(memcmp(one, all + h * W, (size_t)W * sizeof *one) == 0);
            }
            arena_close(&arena);
        }
    backend_close(&be);
}

/* Heads of a warp and of a block: finite, a NaN, an infinity, values whose squares overflow a
 * float, zeros. */
TEST(norm_of_rows_that_hurt)
{
    enum { H = 5, MOST = 600 };
    Backend be;
    T_GPU(&be);
    for (int64_t W = 19; W <= MOST; W += MOST - 19)
        for (int centred = 0; centred < 2; centred++) {
            Arena  arena = {0};
            Tensor in = ref_normal(&arena, 1, H * W, 5), x;
            Norm   n = {.eps = EPS, .centred = centred};
            float *p = in.data, *y = ref_guarded(&arena, H * W);
            bool   whole;
            p[W + 17] = NAN;
            p[2 * W + 3] = INFINITY;
            for (int64_t i = 0; i < W; i++) {
                p[3 * W + i] = i % 2 ? 3e38f : -3e38f;
                p[4 * W + i] = 0;
            }
            p[4 * W - 1] = 0;   // as many of either sign
            T_STATUS_OK(ref_cuda_tensor(&be, &x, p, 1, H * W, 0));
            T_STATUS_OK(op_norm(&be, &x, &x, H, &n));
            T_STATUS_OK(ref_cuda_read(&be, y, &x, &whole));
            for (int64_t i = 0; i < W; i++) {
                T_OK(isfinite(y[i]) && isnan(y[W + i]));
                T_OK(centred || i == 3 ? isnan(y[2 * W + i]) : y[2 * W + i] == 0);
                T_OK(i == W - 1 || fabsf(fabsf(y[3 * W + i]) - 1) < 0.06f);
                T_OK(y[4 * W + i] == 0);
            }
            arena_close(&arena);
        }
    backend_close(&be);
}

TEST(norm_of_no_rows)
{
    Backend be;
    Tensor  none;
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_empty(&be, &none, 0, 8, 0));
    T_STATUS_OK(op_norm(&be, &none, &none, 2, &(Norm){.eps = EPS, .centred = true}));
    T_STATUS_OK(op_poly_glu(&be, &none, &none, (float[4]){1, 1, 1, 1}));
    backend_close(&be);
}

/* --- PolyNorm --- */

static const float POLY[4] = {0.4f, -0.7f, 1.3f, 0.05f};

/* It stays in double: what is left is the last rounding, 2^-24 of the result, and 2^-50 of
 * its terms. */
static void check_poly(Backend *be, int64_t n, float size, int64_t shift)
{
    Arena   arena = {0};
    Tensor  gate = ref_normal(&arena, T, n, 5), up = ref_normal(&arena, T, n, 6), x, by;
    float  *g = gate.data, *u = up.data, *y = ref_guarded(&arena, T * n);
    double *want = arena_alloc(&arena, n, sizeof *want);
    bool    whole;
    for (int64_t i = 0; i < T * n; i++)
        g[i] *= size;
    g[n - 1] *= 30;   // an outlier
    T_STATUS_OK(ref_cuda_tensor(be, &x, g, T, n, shift));
    T_STATUS_OK(ref_cuda_tensor(be, &by, u, T, n, 0));
    T_STATUS_OK(op_poly_glu(be, &x, &by, POLY));
    T_STATUS_OK(ref_cuda_read(be, y, &x, &whole));
    T_OK(whole);
    for (int64_t i = 0; i < T * n; i++) {
        if (i % n == 0)
            ref_poly_glu(want, g + i, u + i, POLY, n);
        double terms = 3 * sqrt((double)n) * fabs((double)u[i]);
        T_NEAR((double)y[i], want[i % n], fabs(want[i % n]) * 0x1p-24 + terms * 0x1p-50);
    }
    arena_close(&arena);
}

TEST(poly_glu_agrees_with_double)
{
    static const int64_t WIDTHS[] = {1, 3, 4, 33, 1023, 1024, 1029};
    static const float   SIZES[] = {1, 1e-3f, 50, 3e8f};   // g^3 overflows half, g^6 float
    Backend be;
    T_GPU(&be);
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (size_t j = 0; j < sizeof SIZES / sizeof *SIZES; j++) {
            ArenaMark mark = backend_mark(&be);
            check_poly(&be, WIDTHS[i], SIZES[j], (int64_t)j);
            backend_rewind(&be, mark);
        }
    backend_close(&be);
}

TEST(poly_glu_shows_nan_and_infinity)
{
    enum { F = 300 };
    Backend be;
    T_GPU(&be);
    Arena  arena = {0};
    Tensor gate = ref_normal(&arena, 4, F, 5), up = ref_normal(&arena, 4, F, 6), x, by;
    float *g = gate.data, *u = up.data, y[4 * F];
    bool   whole;
    g[299] = NAN;
    g[F + 2] = -INFINITY;
    u[2 * F + 3] = NAN;
    memset(g + 3 * F, 0, F * sizeof *g);
    T_STATUS_OK(ref_cuda_tensor(&be, &x, g, 4, F, 0));
    T_STATUS_OK(ref_cuda_tensor(&be, &by, u, 4, F, 0));
    T_STATUS_OK(op_poly_glu(&be, &x, &by, POLY));
    T_STATUS_OK(ref_cuda_read(&be, y, &x, &whole));
    for (int i = 0; i < F; i++) {
        T_OK(isnan(y[i]));
        T_OK(i == 2 ? isnan(y[F + i]) : isfinite(y[F + i]));
        T_OK(i == 3 ? isnan(y[2 * F + i]) : isfinite(y[2 * F + i]));
        T_OK(y[3 * F + i] == POLY[3] * u[3 * F + i]);
    }
    backend_close(&be);
    arena_close(&arena);
}
