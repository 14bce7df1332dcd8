/* test_cuda_codes.c - products on codes, GPU against double. What a product of bf16 sums is
 * known bit by bit: decoded weights, rounded, times rounded inputs; only the order of the sums
 * is not. N, K and T on both sides of strips (32), bricks (64), tiles and kernels. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda_codes.h"
#include "kernels/cuda/cuda_weights.h"
#include "kernels/half.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_codes.h"
#include "tests/kernels/ref_ops.h"

static Status case_pack(Backend *be, Linear *out, const CodesCase *c, Dtype dtype)
{
    return op_linear_codes(be, out, &c->codes, c->bias, dtype);
}

/* y [T,N], in memory of c->arena, of x [T,K]; *whole: nothing beside y was written. Tensors
 * begin shift floats past a multiple of 256 bytes. */
static Status multiply(Backend *be, float **y, bool *whole, CodesCase *c, const Linear *w,
                       const float *x, int64_t T, int64_t shift)
{
    ArenaMark mark = backend_mark(be);
    Tensor    dx, dy;
    *y = ref_guarded(&c->arena, T * w->n);
    TRY(shift ? ref_cuda_tensor(be, &dx, x, T, w->k, shift)
              : ref_cuda_exact(be, &dx, x, T, w->k));
    TRY(ref_cuda_empty(be, &dy, T, w->n, shift));
    TRY(op_linear(be, &dy, &dx, w));
    TRY(ref_cuda_read(be, *y, &dy, whole));
    backend_rewind(be, mark);
    return OK;
}

static const struct {
    int64_t N, K, group;
} SIZES[] = {
    {130, 128, 16}, {33, 256, 32}, {31, 192, 64}, {129, 256, 128}, {40, 96, 48},
    {64, 48, 16},   {1, 16, 16},   {257, 77, ROW}, {5, 7, ROW},    {96, 64, ROW},
};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

/* check(shape, j) for every size, all bits, with and without offsets and order. */
static void each_shape(Backend *be, void (*check)(Backend *, CodesShape, int))
{
    for (int i = 0; i < N_SIZES; i++)
        for (int j = 0; j < 12; j++) {
            ArenaMark mark = backend_mark(be);
            check(be, (CodesShape){SIZES[i].N, SIZES[i].K, SIZES[i].group, 4 + j % 3 * 2,
                                   j / 3 % 2, j / 6, (i + j) % 2}, i + j);
            backend_rewind(be, mark);
        }
}

/* --- weights --- */

/* Inputs that are 1 once and else 0 bring out each weight, to the bit. Rows first .. of that
 * matrix. */
static float *unit_rows(Arena *a, int64_t first, int64_t T, int64_t K)
{
    float *x = arena_alloc(a, T * K, sizeof *x);
    for (int64_t t = 0; t < T; t++)
        x[t * K + (first + t) % K] = 1;
    return x;
}

static void check_weights(Backend *be, CodesShape s, Dtype dtype, int64_t T, int64_t first)
{
    CodesCase c;
    Linear    w;
    float    *y;
    bool      whole;
    s.bias = false;
    ref_codes_open(&c, s, 0);
    T_STATUS_OK(case_pack(be, &w, &c, dtype));
    T_OK(w.bits == s.bits && w.n == s.N && w.k == s.K);
    T_STATUS_OK(multiply(be, &y, &whole, &c, &w, unit_rows(&c.arena, first, T, s.K), T, 0));
    T_OK(whole);
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < s.N; n++) {
            float want = c.w[n * s.K + (first + t) % s.K];
            want = dtype == DTYPE_BF16 ? bf16_round(want) : want;
            T_OK(y[t * s.N + n] == want);
        }
    arena_close(&c.arena);
}

static void weights_f32(Backend *be, CodesShape s, int i)
{
    check_weights(be, s, DTYPE_F32, 33, i * 33);
}

/* One of the kernels each: 8 rows, 16, tiles of 32, 64 and 128. */
static void weights_bf16(Backend *be, CodesShape s, int i)
{
    static const int64_t COUNTS[] = {7, 14, 25, 50, 70};
    check_weights(be, s, DTYPE_BF16, COUNTS[i % 5], i * 29);
}

TEST(codes_every_weight_is_that_of_codes_decode_f32)
{
    Backend be;
    T_GPU(&be);
    each_shape(&be, weights_f32);
    backend_close(&be);
}

TEST(codes_every_weight_is_that_of_codes_decode_rounded_to_bf16)
{
    Backend be;
    T_GPU(&be);
    each_shape(&be, weights_bf16);
    backend_close(&be);
}

/* Every kernel of every width meets all inputs of an order and its offsets. */
TEST(codes_every_kernel_has_every_weight)
{
    static const int64_t COUNTS[] = {2, 9, 17, 33, 65};
    Backend be;
    T_GPU(&be);
    for (int bits = 4; bits <= 8; bits += 2)
        for (int i = 0; i < 5; i++)
            for (int64_t first = 0; first < 80; first += COUNTS[i] < 40 ? 80 : COUNTS[i])
                check_weights(&be, (CodesShape){40, 80, 16, bits, true, true, false},
                              DTYPE_BF16, COUNTS[i], first);
    backend_close(&be);
}

/* --- products --- */

/* One output in double, and what its sums may lose: in tensor cores a step of 16 inputs adds
 * up with a bit less than f32 has, then steps in a chain. One row multiplies sums of codes. */
static double output(double *tol, const CodesCase *c, int64_t n, const float *x, Dtype dtype,
                     int64_t T)
{
    double size, want = ref_codes_output(&size, c, n, x, dtype, T);
    *tol = (double)(c->codes.k / 8 + 24) * 0x1p-24 * size;
    return want;
}

static void check_product(Backend *be, CodesShape s, Dtype dtype, int64_t T, int64_t shift)
{
    CodesCase c;
    Linear    w;
    float    *y;
    bool      whole;
    ref_codes_open(&c, s, T);
    const float *x = c.x.data;
    T_STATUS_OK(case_pack(be, &w, &c, dtype));
    T_STATUS_OK(multiply(be, &y, &whole, &c, &w, x, T, shift));
    T_OK(whole);
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < s.N; n++) {
            double tol, want = output(&tol, &c, n, x + t * s.K, dtype, T);
            T_NEAR(y[t * s.N + n], want, tol);
        }
    arena_close(&c.arena);
}

static void one_row(Backend *be, CodesShape s, int i)
{
    check_product(be, s, DTYPE_F32, 1, i % 3);
    check_product(be, s, DTYPE_BF16, 1, i % 3);
}

static void many_rows(Backend *be, CodesShape s, int i)
{
    static const int64_t COUNTS[] = {2, 15, 16, 17, 65, 129};
    check_product(be, s, i % 4 ? DTYPE_BF16 : DTYPE_F32, COUNTS[i % 6], i % 3);
}

TEST(codes_one_row_agrees_with_double)
{
    Backend be;
    T_GPU(&be);
    each_shape(&be, one_row);
    backend_close(&be);
}

TEST(codes_many_rows_agree_with_double)
{
    Backend be;
    T_GPU(&be);
    each_shape(&be, many_rows);
    backend_close(&be);
}

/* K of whole bricks and one input: slices of unlike lengths, the last brick nearly empty. */
TEST(codes_sums_in_slices_agree_with_double)
{
    static const int64_t COUNTS[] = {3, 12, 20};
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 9; i++)
        check_product(&be, (CodesShape){35, 1089, ROW, 4 + i / 3 * 2, i % 2, i % 4 == 0, true},
                      DTYPE_BF16, COUNTS[i % 3], 0);
    for (int i = 0; i < 6; i++)
        check_product(&be, (CodesShape){35, i % 2 ? 2113 : 2112, i % 2 ? ROW : 48,
                                        4 + i / 2 * 2, i % 2, i % 4 == 0, true},
                      i % 3 ? DTYPE_BF16 : DTYPE_F32, 1, 0);
    backend_close(&be);
}

/* More rows than tiles take: decoded weights through cuBLAS. */
TEST(codes_of_a_long_batch_agree_with_double)
{
    Backend be;
    T_GPU(&be);
    for (int bits = 4; bits <= 8; bits += 2)
        check_product(&be, (CodesShape){35, 48, 16, bits, bits == 6, bits < 8, bits < 8},
                      DTYPE_BF16, 1025, 1);
    backend_close(&be);
}

/* --- what a row depends on --- */

/* Row 0 of a batch, and the same row as its last one among others. */
static void check_row_alone(Backend *be, CodesShape s, Dtype dtype, int64_t T)
{
    CodesCase c;
    Linear    w;
    float    *y, *other;
    bool      whole;
    ref_codes_open(&c, s, T);
    const float *x = c.x.data;
    float *x2 = ref_normal(&c.arena, T, s.K, 4).data;
    memcpy(x2 + (T - 1) * s.K, x, (size_t)s.K * sizeof *x);
    T_STATUS_OK(case_pack(be, &w, &c, dtype));
    T_STATUS_OK(multiply(be, &y, &whole, &c, &w, x, T, 0));
    T_STATUS_OK(multiply(be, &other, &whole, &c, &w, x2, T, 0));
    T_OK(memcmp(y, other + (T - 1) * s.N, (size_t)s.N * sizeof *y) == 0);
    arena_close(&c.arena);
}

TEST(codes_row_does_not_depend_on_other_rows)
{
    static const int64_t COUNTS[] = {2, 16, 30, 64, 129};
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 5; i++)
        check_row_alone(&be, (CodesShape){70, 192, 32, 4 + i % 3 * 2, true, true, true},
                        DTYPE_BF16, COUNTS[i]);
    backend_close(&be);
}

static void check_nan(Backend *be, int64_t T, Dtype dtype, int bits, bool offsets)
{
    enum { N = 40, K = 80 };
    CodesCase c;
    Linear    w;
    float    *y;
    bool      whole;
    ref_codes_open(&c, (CodesShape){N, K, 16, bits, offsets, false, false}, T);
    float *x = c.x.data;
    x[K - 1] = NAN;
    if (T > 1)
        x[(T - 1) * K] = INFINITY;
    T_STATUS_OK(case_pack(be, &w, &c, dtype));
    T_STATUS_OK(multiply(be, &y, &whole, &c, &w, x, T, 0));
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++) {
            float v = y[t * N + n];
            T_OK(t == 0 ? isnan(v) : isfinite(v) == (t < T - 1));
        }
    arena_close(&c.arena);
}

TEST(codes_nan_and_infinity_stay_in_their_row)
{
    static const int64_t COUNTS[] = {1, 5, 16, 20, 40, 70};
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 12; i++)
        check_nan(&be, COUNTS[i / 2], i % 4 == 3 ? DTYPE_F32 : DTYPE_BF16, 4 + i % 3 * 2,
                  i % 2);
    backend_close(&be);
}

TEST(codes_no_rows_are_no_work)
{
    CodesCase c;
    Backend   be;
    Linear    w;
    Tensor    x, y;
    T_GPU(&be);
    ref_codes_open(&c, (CodesShape){40, 48, 16, 4, true, true, true}, 0);
    T_STATUS_OK(case_pack(&be, &w, &c, DTYPE_BF16));
    T_STATUS_OK(backend_tensor(&be, &x, 2, (int64_t[]){0, 48}));
    T_STATUS_OK(backend_tensor(&be, &y, 2, (int64_t[]){0, 40}));
    T_STATUS_OK(op_linear(&be, &y, &x, &w));
    backend_close(&be);
    arena_close(&c.arena);
}

/* --- the last layer, memory, failures --- */

/* Some outputs are those of the whole product, to the bit. */
static void check_block(Backend *be, int64_t T, Dtype dtype, int64_t first, int64_t n)
{
    enum { N = 200, K = 96 };
    CodesCase c;
    Linear    w;
    Tensor    dx, dy;
    float    *all;
    bool      whole;
    ref_codes_open(&c, (CodesShape){N, K, 32, 6, true, true, true}, T);
    const float *x = c.x.data;
    float       *part = ref_guarded(&c.arena, T * n);
    T_STATUS_OK(case_pack(be, &w, &c, dtype));
    T_STATUS_OK(multiply(be, &all, &whole, &c, &w, x, T, 0));
    T_STATUS_OK(ref_cuda_exact(be, &dx, x, T, K));
    T_STATUS_OK(ref_cuda_empty(be, &dy, T, n, 1));
    T_STATUS_OK(cuda_begin(be, &dy));
    T_STATUS_OK(cuda_codes_block(be, dy.data, &dx, &w, first, n));
    T_STATUS_OK(ref_cuda_read(be, part, &dy, &whole));
    T_OK(whole);
    for (int64_t i = 0; i < T * n; i++)
        T_OK(part[i] == all[i / n * N + first + i % n]);
    arena_close(&c.arena);
}

TEST(codes_a_block_of_outputs_is_that_of_all)
{
    static const int64_t COUNTS[] = {1, 6, 20};
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 6; i++)
        check_block(&be, COUNTS[i % 3], i < 3 ? DTYPE_F32 : DTYPE_BF16, 32 + i % 2 * 32,
                    i % 2 ? 136 : 65);
    backend_close(&be);
}

static void check_score(Backend *be, int64_t T, Dtype dtype)
{
    enum { V = 1100, K = 64, MOST = 20 };
    CodesCase c;
    Linear    w;
    Tensor    dx;
    int32_t   targets[MOST], best[MOST];
    float     logprob[MOST];
    ref_codes_open(&c, (CodesShape){V, K, 32, 6, true, true, true}, T);
    float  *x = c.x.data;
    double *logits = arena_alloc(&c.arena, V, sizeof *logits);
    for (int64_t i = 0; i < T * K; i++)  // logits of a language model, not of hundreds
        x[i] *= 0.01f;
    for (int64_t t = 0; t < T; t++)
        targets[t] = (int32_t)(t * 911 % V);
    T_STATUS_OK(case_pack(be, &w, &c, dtype));
    T_STATUS_OK(ref_cuda_exact(be, &dx, x, T, K));
    T_STATUS_OK(op_score(be, &dx, &w, targets, logprob, best));
    for (int64_t t = 0; t < T; t++) {
        double tol;
        for (int64_t n = 0; n < V; n++)
            logits[n] = output(&tol, &c, n, x + t * K, dtype, T);
        T_NEAR(logprob[t], ref_logprob(logits, V, targets[t]), 1e-4);
        T_OK(best[t] == ref_best(logits, V));
    }
    arena_close(&c.arena);
}

TEST(codes_serve_as_the_last_layer)
{
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 4; i++)
        check_score(&be, i / 2 ? 20 : 1, i % 2 ? DTYPE_BF16 : DTYPE_F32);
    backend_close(&be);
}

/* Codes and scales of more than 8 MB, which go over in pieces, where they are on the GPU: 65
 * strips, each of one code, and 1040 groups of scales. */
TEST(codes_on_their_way_in_pieces_lie_in_order)
{
    enum { N = 65 * CODES_STRIP, K = 1040 * CODES_RUN, GROUPS = K / CODES_RUN };
    Arena   arena = {0};
    Backend be;
    Linear  w;
    T_GPU(&be);
    int8_t *codes = arena_alloc(&arena, N * K, 1);
    float  *scales = arena_alloc(&arena, N * GROUPS, sizeof *scales);
    for (int64_t n = 0; n < N; n++)
        memset(codes + n * K, (int)(n / CODES_STRIP % 13) - 6, K);
    for (int64_t i = 0; i < N * GROUPS; i++)
        scales[i] = (float)i;
    Codes c = {N, K, 4, CODES_RUN, codes, scales, NULL, NULL};
    T_STATUS_OK(op_linear_codes(&be, &w, &c, NULL, DTYPE_F32));
    const CudaWeights *p = w.packed;
    unsigned char     *got = arena_alloc(&arena, (int64_t)p->bytes, 1);
    T_STATUS_OK(cuda_begin(&be, NULL));
    T_STATUS_OK(cuda_fetch(&be, got, p->device, p->bytes));
    int64_t strip = CODES_STRIP * K / 2, wrong = 0;
    for (int64_t i = 0; i < N * K / 2; i++)
        wrong += got[i] != 0x11 * (i / strip % 13 + 2);
    T_OK(wrong == 0);
    for (int64_t g = 0; g < GROUPS; g++)
        for (int64_t n = 0; n < N; n++) {
            float scale;
            memcpy(&scale, got + p->codes->scales + (size_t)(g * N + n) * sizeof scale,
                   sizeof scale);
            wrong += scale != scales[n * GROUPS + g];
        }
    T_OK(wrong == 0);
    backend_close(&be);
    arena_close(&arena);
}

/* Rows so long that one strip of decoded weights fills a panel, and a second one comes. */
TEST(codes_of_two_panels)
{
    enum { N = 33, K = 262144 + 64, T = 2 };
    Arena   arena = {0};
    Backend be;
    Linear  w;
    Tensor  x, y;
    bool    whole;
    T_GPU(&be);
    int8_t *codes = arena_alloc(&arena, (int64_t)N * K, 1);
    float  *scales = arena_alloc(&arena, N, sizeof *scales);
    float  *in = arena_alloc(&arena, T * K, sizeof *in), *got = ref_guarded(&arena, T * N);
    for (int64_t n = 0; n < N; n++) {
        codes[n * K + 7000 * n] = 5;
        scales[n] = (float)(1 + n);
        for (int64_t t = 0; t < T; t++)
            in[t * K + 7000 * n] = (float)(1 + t);
    }
    Codes c = {N, K, 4, K, codes, scales, NULL, NULL};
    T_STATUS_OK(op_linear_codes(&be, &w, &c, NULL, DTYPE_F32));
    T_STATUS_OK(ref_cuda_exact(&be, &x, in, T, K));
    T_STATUS_OK(ref_cuda_empty(&be, &y, T, N, 0));
    T_STATUS_OK(op_linear(&be, &y, &x, &w));
    T_STATUS_OK(ref_cuda_read(&be, got, &y, &whole));
    T_OK(whole);
    for (int i = 0; i < T * N; i++)
        T_OK(got[i] == (float)(5 * (1 + i % N) * (1 + i / N)));
    backend_close(&be);
    arena_close(&arena);
}

TEST(codes_survive_every_failed_allocation)
{
    CodesCase c;
    Linear    w;
    ref_codes_open(&c, (CodesShape){70, 96, 32, 6, true, true, true}, 20);
    for (int k = 1; k < 60; k++) {
        Backend be;
        Tensor  dx, dy;
        T_GPU(&be);
        T_STATUS_OK(ref_cuda_exact(&be, &dx, c.x.data, 20, 96));
        T_STATUS_OK(ref_cuda_empty(&be, &dy, 20, 70, 0));
        arena_fail_at(k);
        Status s = case_pack(&be, &w, &c, DTYPE_BF16);
        if (s == OK)
            s = op_linear(&be, &dy, &dx, &w);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && strstr(status_text(), "out of memory")));
        T_STATUS_OK(case_pack(&be, &w, &c, DTYPE_BF16));
        T_STATUS_OK(op_linear(&be, &dy, &dx, &w));
        backend_close(&be);
        if (s == OK) {
            T_OK(k > 5);
            arena_close(&c.arena);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}
