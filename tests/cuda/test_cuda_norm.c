/* test_cuda_norm.c - norms and PolyNorm, GPU against double: widths on both sides of four
 * values, a warp's and a block's head; tensors that start anywhere. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

enum { T = 3 };
static const float EPS = 1e-5f;

typedef struct {
    int64_t width, heads;
    bool    centred, with_w, with_b, each;  // each: vectors of whole rows
    float   mean;
    int64_t shift;
} Shape;

/* The norm on the host and on the GPU. */
static Status norms_of(Backend *be, Arena *a, const Shape *s, Norm *host, Norm *gpu)
{
    int64_t n = s->each ? s->width * s->heads : s->width;
    Tensor *to[2] = {&host->w, &host->b}, *there[2] = {&gpu->w, &gpu->b};
    *host = *gpu = (Norm){.eps = EPS, .centred = s->centred};
    for (int i = 0; i < 2; i++) {
        Tensor on;
        if (!(i ? s->with_b : s->with_w))
            continue;
        *to[i] = tensor_1d(DTYPE_F32, ref_normal(a, 1, n, 21 + (uint64_t)i).data, n);
        TRY(ref_cuda_tensor(be, &on, to[i]->data, 1, n, s->shift));
        *there[i] = tensor_1d(DTYPE_F32, on.data, n);
    }
    return OK;
}

static const float *vector_of(const Tensor *t, const Shape *s, int64_t h)
{
    const float *p = t->data;
    return p ? p + (s->each ? h * s->width : 0) : NULL;
}

/* want [width] */
static void ref_head(double *want, const float *x, const Norm *n, const Shape *s, int64_t h)
{
    static const float ONES[4100] = {[0 ... 4099] = 1};
    const float *w = vector_of(&n->w, s, h), *b = vector_of(&n->b, s, h);
    if (s->centred)
        ref_layernorm(want, x, w, b, s->width, n->eps);
    else
        ref_rmsnorm(want, x, w ? w : ONES, s->width, n->eps);
}

/* Each value is within so many roundings: LayerNorm stays in double to the last, RMS rounds
 * its factor and two products. */
static bool within_roundings(const float *y, const double *want, const Shape *s)
{
    double rounding = s->centred ? 0x1p-24 : 3 * 0x1p-24;
    for (int64_t i = 0; i < s->width; i++) {
        /* 1e-15: the last sum of a LayerNorm cancels */
        if (!(fabs((double)y[i] - want[i]) <= fabs(want[i]) * rounding * 1.001 + 1e-15))
            return false;
    }
    return true;
}

static void check_shape(Backend *be, const Shape *s)
{
    Arena   arena = {0};
    int64_t C = s->width * s->heads;
    Tensor  in = ref_normal(&arena, T, C, 7), x, y;
    float  *got = ref_guarded(&arena, T * C), *again = ref_guarded(&arena, T * C);
    double *want = arena_alloc(&arena, s->width, sizeof *want);
    Norm    host, gpu;
    bool    whole;
    for (int64_t i = 0; i < T * C; i++)
        ((float *)in.data)[i] += s->mean;
    T_STATUS_OK(norms_of(be, &arena, s, &host, &gpu));
    T_STATUS_OK(ref_cuda_tensor(be, &x, in.data, T, C, s->shift));
    T_STATUS_OK(ref_cuda_empty(be, &y, T, C, (s->shift + 1) % 4));
    T_STATUS_OK(op_norm(be, &y, &x, s->heads, &gpu));
    T_STATUS_OK(ref_cuda_read(be, got, &y, &whole));
    T_OK(whole);
    for (int64_t i = 0; i < T * s->heads; i++) {
        ref_head(want, (float *)in.data + i * s->width, &host, s, i % s->heads);
        T_OK(within_roundings(got + i * s->width, want, s));
    }
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
            Shape     s = {WIDTHS[i], WIDTHS[i] > 1000 ? 1 : 3, bits & 1, bits & 2,
                           (bits & 5) == 5, bits & 8, 0, (int64_t)i % 4};
            check_shape(&be, &s);
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
        Shape s = {width, 1, true, true, true, false, 1e4f, 0};
        check_shape(&be, &s);
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
