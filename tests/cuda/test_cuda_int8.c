/* test_cuda_int8.c - linear layers of 8-bit weights on inputs that were just rounded to 8 bits:
 * whole numbers, to the bit; and that codes of inputs are forgotten when they change. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

typedef struct {
    Arena        arena;
    Codes        codes;
    const float *bias;     // or NULL
    float       *x;        // [T,K] before rounding
    int8_t      *x_codes;  // [T,K] after
    float       *x_scales; // [T]
    int64_t      T;
} Case;

static void case_open(Case *c, int64_t T, int64_t N, int64_t K, bool bias)
{
    uint64_t seed = (uint64_t)(T * 3 + N * 7 + K * 31);
    *c = (Case){.T = T};
    int8_t *codes = arena_alloc(&c->arena, N * K, 1);
    for (int64_t i = 0; i < N * K; i++)
        codes[i] = (int8_t)((int)floorf(check_uniform(&seed) * 128));
    c->codes = (Codes){N, K, 8, K, codes, ref_normal(&c->arena, 1, N, seed).data, NULL, NULL};
    c->bias = bias ? ref_normal(&c->arena, 1, N, seed + 2).data : NULL;
    c->x = ref_normal(&c->arena, T, K, seed + 3).data;
    c->x_codes = arena_alloc(&c->arena, T * K, 1);
    c->x_scales = arena_alloc(&c->arena, T, sizeof *c->x_scales);
}

/* What op_fakequant_rows makes of x, rows by themselves or all with the scale of the largest. */
static void round_inputs(Case *c, const RowRounding *r)
{
    int64_t K = c->codes.k;
    float   top = 0, low = r->wide ? -128 : -127;
    for (int64_t t = 0; t < c->T; t++) {
        float most = 0;
        for (int64_t k = 0; k < K; k++)
            most = fmaxf(most, fabsf(c->x[t * K + k]));
        c->x_scales[t] = most / (r->wide ? 127.5f : 127);
        top = fmaxf(top, c->x_scales[t]);
    }
    for (int64_t t = 0; t < c->T; t++) {
        c->x_scales[t] = r->by_sequence ? top : c->x_scales[t];
        for (int64_t k = 0; k < K; k++) {
            float v = c->x_scales[t] > 0 ? c->x[t * K + k] / c->x_scales[t] : 0;
            c->x_codes[t * K + k] = (int8_t)fminf(fmaxf(nearbyintf(v), low), 127);
        }
    }
}

static float want(const Case *c, int64_t t, int64_t n)
{
    int64_t K = c->codes.k;
    int32_t sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += c->x_codes[t * K + k] * c->codes.codes[n * K + k];
    float y = c->x_scales[t] * (c->codes.scales[n] * (float)sum);
    return c->bias ? y + c->bias[n] : y;
}

static Status round_on(Backend *be, Tensor *x, const RowRounding *r)
{
    const int32_t start[] = {0, (int32_t)x->shape[0]};
    const int64_t number[] = {0};
    Batch         batch = {1, start, number};
    return op_fakequant_rows(be, x, &batch, r);
}

static const RowRounding EACH = {8, false, false};

/* c's weights and its inputs, just rounded, on the GPU. */
static Status prepare(Backend *be, const Case *c, Linear *w, Tensor *x, Dtype dtype,
                      const RowRounding *r, int64_t shift)
{
    TRY(op_linear_codes(be, w, &c->codes, c->bias, dtype));
    TRY(ref_cuda_tensor(be, x, c->x, c->T, c->codes.k, shift));
    return round_on(be, x, r);
}

/* *got: their product [T,N], in memory of c->arena. */
static Status multiply(Backend *be, Case *c, float **got, const Linear *w, const Tensor *x,
                       int64_t shift)
{
    Tensor y;
    bool   whole;
    *got = ref_guarded(&c->arena, c->T * c->codes.n);
    TRY(ref_cuda_empty(be, &y, c->T, c->codes.n, shift));
    TRY(op_linear(be, &y, x, w));
    TRY(ref_cuda_read(be, *got, &y, &whole));
    return whole ? OK : STATUS(ERR_RANGE, "something was written beside y");
}

/* The same of inputs rounded row by row. */
static Status product(Backend *be, Case *c, float **got, Dtype dtype)
{
    Linear w;
    Tensor x;
    TRY(prepare(be, c, &w, &x, dtype, &EACH, 0));
    return multiply(be, c, got, &w, &x, 0);
}

static void check_bits(Backend *be, int64_t T, int64_t N, int64_t K, int i)
{
    RowRounding r = {8, i % 3 == 1, i % 3 == 2};
    Case        c;
    Linear      w;
    Tensor      x;
    float      *got;
    ArenaMark   mark = backend_mark(be);
    case_open(&c, T, N, K, i % 2);
    if (i % 4 == 0)
        memset(c.x, 0, (size_t)K * sizeof *c.x);
    round_inputs(&c, &r);
    T_STATUS_OK(prepare(be, &c, &w, &x, i % 2 ? DTYPE_F32 : DTYPE_BF16, &r, i % 3));
    for (int again = 0; again < 2; again++) {
        T_STATUS_OK(multiply(be, &c, &got, &w, &x, i % 3));
        for (int64_t t = 0; t < T; t++)
            for (int64_t n = 0; n < N; n++)
                T_OK(got[t * N + n] == want(&c, t, n));
    }
    backend_rewind(be, mark);
    arena_close(&c.arena);
}

TEST(whole_numbers_have_every_bit)
{
    static const int64_t ROWS[] = {2, 31, 32, 33, 128, 129}, OUTPUTS[] = {1, 33, 128, 130},
                         INPUTS[] = {5, 64, 77, 128, 200};
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < 30; i++)
        check_bits(&be, ROWS[i % 6], OUTPUTS[i % 4], INPUTS[i % 5], i);
    check_bits(&be, 3, 40, 2113, 0);  // K in slices
    check_bits(&be, 34, 40, 2113, 1);
    check_bits(&be, 3, 40, 2177, 2);  // and the last one shorter
    backend_close(&be);
}

/* All codes at an end of their range: the largest sum that there is of so many. */
static void case_open_ends(Case *c, int64_t T, int64_t N, int64_t K)
{
    case_open(c, T, N, K, false);
    int8_t *codes = arena_alloc(&c->arena, N * K, 1);
    memset(codes, -128, (size_t)(N * K));
    c->codes.codes = codes;
    for (int64_t i = 0; i < T * K; i++)
        c->x[i] = i < K ? -3 : 5;
}

TEST(whole_numbers_hold_the_largest_sums)
{
    enum { T = 2, N = 33, K = 2048 };
    Case    c;
    Backend be;
    float  *got;
    T_GPU(&be);
    case_open_ends(&c, T, N, K);
    round_inputs(&c, &EACH);
    T_STATUS_OK(product(&be, &c, &got, DTYPE_F32));
    for (int64_t i = 0; i < T * N; i++)
        T_OK(got[i] == want(&c, i / N, i % N));
    T_OK(got[0] == c.x_scales[0] * (c.codes.scales[0] * (127 * 128 * (float)K)));
    backend_close(&be);
    arena_close(&c.arena);
}

/* One input more than int32 surely holds: no whole numbers. */
TEST(rows_too_long_for_whole_numbers)
{
    enum { T = 2, N = 3, K = 140000 };
    Case    c;
    Backend be;
    float  *got;
    T_GPU(&be);
    case_open_ends(&c, T, N, K);
    T_STATUS_OK(product(&be, &c, &got, DTYPE_BF16));
    for (int64_t i = 0; i < T * N; i++) {
        double want_of_it = (double)c.x[i / N * K] * -128 * (double)c.codes.scales[i % N] * K;
        T_NEAR(got[i], want_of_it, 0.01 * fabs(want_of_it));
    }
    backend_close(&be);
    arena_close(&c.arena);
}

TEST(whole_numbers_keep_nan_and_infinity_in_their_rows)
{
    enum { T = 5, N = 40, K = 70 };
    Case    c;
    Backend be;
    float  *got;
    T_GPU(&be);
    case_open(&c, T, N, K, true);
    c.x[K + 3] = NAN;
    c.x[3 * K] = -INFINITY;
    T_STATUS_OK(product(&be, &c, &got, DTYPE_BF16));
    for (int64_t i = 0; i < T * N; i++)
        T_OK(i / N % 2 ? isnan(got[i]) : isfinite(got[i]));
    backend_close(&be);
    arena_close(&c.arena);
}

/* --- inputs that are others by now --- */

enum { T = 6, N = 40, K = 80 };

/* y is the product with x as it is now: f32, within what sums of K lose. */
static void check_now(Backend *be, const Case *c, const Linear *w, const Tensor *x)
{
    Arena   arena = {0};
    int64_t rows = x->shape[0], inputs = c->codes.k;
    Tensor  y;
    bool    whole;
    float  *now = arena_alloc(&arena, rows * inputs, sizeof *now);
    float  *got = ref_guarded(&arena, rows * N);
    float  *decoded = arena_alloc(&arena, N * inputs, sizeof *decoded);
    codes_decode(decoded, &c->codes, 0, N);
    T_STATUS_OK(ref_cuda_empty(be, &y, rows, N, 0));
    T_STATUS_OK(op_linear(be, &y, x, w));
    T_STATUS_OK(backend_download(be, now, x));
    T_STATUS_OK(ref_cuda_read(be, got, &y, &whole));
    for (int64_t i = 0; i < rows * N; i++) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < inputs; k++) {
            double term = (double)now[i / N * inputs + k] * decoded[i % N * inputs + k];
            sum += term;
            size += fabs(term);
        }
        T_NEAR(got[i], sum, (double)inputs * 0x1p-24 * size);
    }
    arena_close(&arena);
}

/* check(...) on an x that has just been rounded. */
static void each_change(void (*change)(Backend *, Case *, Tensor *, const Linear *))
{
    Case    c;
    Backend be;
    Linear  w;
    Tensor  x;
    T_GPU(&be);
    case_open(&c, T, N, K, false);
    T_STATUS_OK(prepare(&be, &c, &w, &x, DTYPE_F32, &EACH, 0));
    change(&be, &c, &x, &w);
    backend_close(&be);
    arena_close(&c.arena);
}

static void add_to_it(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    Tensor other;
    T_STATUS_OK(ref_cuda_tensor(be, &other, c->x, T, K, 0));
    T_STATUS_OK(op_add(be, x, &other));
    check_now(be, c, w, x);
}

static void send_another(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    c->x[5] = 40;
    T_STATUS_OK(backend_upload(be, x, c->x));
    check_now(be, c, w, x);
}

static void write_its_end(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    Tensor end = ref_part(x, T - 1, T);
    T_STATUS_OK(op_sigmoid(be, &end));
    check_now(be, c, w, x);
}

static void take_some_rows(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    Tensor middle = ref_part(x, 2, T), first = ref_part(x, 0, 2);
    check_now(be, c, w, &middle);
    check_now(be, c, w, &first);
}

static void write_beside_it(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    Tensor other;
    T_STATUS_OK(ref_cuda_tensor(be, &other, c->x, T, K, 0));
    T_STATUS_OK(op_sigmoid(be, &other));
    check_now(be, c, w, x);
}

/* A product into memory that begins before it, one number a row of a matrix. */
static void write_by_product(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    enum { BEFORE = 2 };
    Tensor  all, part, a;
    float  *sent = ref_normal(&c->arena, BEFORE + T, K, 8).data;
    T_STATUS_OK(ref_cuda_exact(be, &all, sent, BEFORE + T, K));
    T_STATUS_OK(ref_cuda_exact(be, &a, sent, BEFORE + 1, 1));
    part = ref_part(&all, BEFORE, BEFORE + T);
    T_STATUS_OK(op_copy(be, &part, x));
    T_STATUS_OK(round_on(be, &part, &EACH));
    T_STATUS_OK(op_product(be, &(MatrixProduct){.m = BEFORE + 1, .n = 1, .k = 1, .alpha = 1,
                                                .a = a.data, .b = a.data, .lda = 1, .ldb = 1,
                                                .ldc = K, .c = all.data}));
    check_now(be, c, w, &part);
}

/* Another rounding that makes no codes of 8 bits. */
static void round_again(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    T_STATUS_OK(round_on(be, x, &(RowRounding){4, false, false}));
    check_now(be, c, w, x);
}

/* Larger codes, then memory that held them given back and taken by `kept`, which has about
 * their size. */
static void give_memory_back(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    enum { KEPT = 16 };
    ArenaMark mark = backend_mark(be);
    Tensor    large, other, kept;
    float    *sent = ref_normal(&c->arena, KEPT, K, 9).data;
    float    *got = arena_alloc(&c->arena, KEPT * K, sizeof *got);
    T_STATUS_OK(ref_cuda_empty(be, &large, 40, K, 0));
    for (int i = 0; i < 40; i++) {
        Tensor row = ref_part(&large, i, i + 1), from = ref_part(x, i % T, i % T + 1);
        T_STATUS_OK(op_copy(be, &row, &from));
    }
    T_STATUS_OK(round_on(be, &large, &(RowRounding){8, false, true}));
    check_now(be, c, w, &large);
    backend_rewind(be, mark);
    check_now(be, c, w, x);
    T_STATUS_OK(ref_cuda_exact(be, &kept, sent, KEPT, K));
    T_STATUS_OK(ref_cuda_tensor(be, &other, c->x, T, K, 0));
    T_STATUS_OK(round_on(be, &other, &EACH));
    check_now(be, c, w, &other);
    T_STATUS_OK(backend_download(be, got, &kept));
    T_OK(memcmp(got, sent, KEPT * K * sizeof *got) == 0);
}

/* The same memory as half as many inputs of twice as many rows, and of as many rows. */
static void take_another_shape(Backend *be, Case *c, Tensor *x, const Linear *w)
{
    Case   half;
    Linear narrow;
    Tensor view = *x;
    (void)c, (void)w;
    case_open(&half, T, N, K / 2, false);
    view.shape[1] = K / 2;
    T_STATUS_OK(op_linear_codes(be, &narrow, &half.codes, NULL, DTYPE_F32));
    check_now(be, &half, &narrow, &view);
    arena_close(&half.arena);
}

/* Weights of 8 bits that have an offset are no whole numbers. */
TEST(weights_with_offsets_keep_them)
{
    Case    c;
    Backend be;
    Linear  w;
    Tensor  x;
    T_GPU(&be);
    case_open(&c, T, N, K, false);
    c.codes.offsets = ref_normal(&c.arena, 1, N, 77).data;
    T_STATUS_OK(prepare(&be, &c, &w, &x, DTYPE_F32, &EACH, 0));
    check_now(&be, &c, &w, &x);
    Case   whole;  // that wants codes of inputs
    Linear other;
    case_open(&whole, T, N, K, false);
    T_STATUS_OK(op_linear_codes(&be, &other, &whole.codes, NULL, DTYPE_F32));
    T_STATUS_OK(round_on(&be, &x, &EACH));
    check_now(&be, &c, &w, &x);
    backend_close(&be);
    arena_close(&whole.arena);
    arena_close(&c.arena);
}

TEST(twin_is_not_that_of_another_shape)
{
    each_change(take_another_shape);
}

TEST(twin_is_forgotten_when_something_is_added)
{
    each_change(add_to_it);
}

TEST(twin_is_forgotten_when_others_are_sent)
{
    each_change(send_another);
}

TEST(twin_is_forgotten_when_a_product_reaches_it)
{
    each_change(write_by_product);
}

TEST(twin_is_forgotten_when_a_part_is_written)
{
    each_change(write_its_end);
}

TEST(twin_is_not_that_of_a_part)
{
    each_change(take_some_rows);
}

TEST(twin_stays_when_others_are_written)
{
    each_change(write_beside_it);
}

TEST(twin_is_forgotten_by_another_rounding)
{
    each_change(round_again);
}

TEST(twin_goes_with_its_memory)
{
    each_change(give_memory_back);
}
