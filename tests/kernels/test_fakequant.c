/* test_fakequant.c - rounding of inputs and of keys and values: every number against the
 * definition, ties, what must stay, NaN, and independence of neighbours and threads. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

/* Each operation in double, then rounded to float: for one of + - / * on floats that is
 * the float operation itself, so equal bits are asked for. */
static float f(double x)
{
    return (float)x;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static bool same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Equal as numbers (0 and -0 too); NaN is equal to NaN. */
static bool equal(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(a[i] == b[i]) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static float *copy_of(Arena *a, const Tensor *t)
{
    float *copy = arena_alloc(a, tensor_count(t), sizeof *copy);
    memcpy(copy, t->data, tensor_bytes(t));
    return copy;
}

/* --- rows --- */

/* y [n] of one scale */
static void ref_symmetric(float *y, int64_t n, const RowRounding *r)
{
    double top = 0, half = pow(2, r->bits - 1), limit = r->wide ? half - 0.5 : half - 1;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(y[i]));
    float s = f(top / limit);
    for (int64_t i = 0; i < n; i++) {
        double code = s > 0 ? f(y[i] / (double)s) : 0;
        code = nearbyint(clamp(code, r->wide ? -half : 1 - half, half - 1));
        y[i] = f(code * s);
    }
}

static void ref_rows(float *y, const Batch *b, int64_t K, const RowRounding *r)
{
    for (int64_t q = 0; q < b->n_sequences; q++) {
        int64_t first = b->start[q], n = b->start[q + 1] - first;
        if (r->by_sequence)
            ref_symmetric(y + first * K, n * K, r);
        else
            for (int64_t t = first; t < first + n; t++)
                ref_symmetric(y + t * K, K, r);
    }
}

static const int32_t START[] = {0, 3, 3, 4, 9};    // one of them is empty
static const int64_t NUMBER[] = {0, 1, 2, 3};
static const Batch   BATCH = {4, START, NUMBER};
static const int     BITS[] = {8, 6, 4};

static RowRounding rounding(int i)
{
    return (RowRounding){BITS[i % 3], i / 3 % 2, i / 6};
}

static void check_rows(int64_t K, const RowRounding *r)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_normal(&arena, 9, K, 5);
    float  *values = x.data, *want;
    for (int64_t i = 0; i < K; i++)
        values[2 * K + i] *= 100;     // rows and sequences of other sizes
    for (int64_t i = 0; i < K; i++)
        values[3 * K + i] = 0;        // a sequence of one row, and of zeros
    values[7 * K] = -30;
    want = copy_of(&arena, &x);
    ref_rows(want, &BATCH, K, r);
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    T_STATUS_OK(op_fakequant_rows(&be, &x, &BATCH, r));
    T_OK(equal(values, want, 9 * K));
    T_OK(ref_guards_hold(values, 9 * K));
    backend_close(&be);
    arena_close(&arena);
}

TEST(rows_are_the_definition)
{
    const int64_t WIDTHS[] = {1, 3, 4, 7, 8, 15, 16, 17, 33, 100, 4099};
    REF_EACH_ISA(isa)
    for (int i = 0; i < 12; i++) {
        RowRounding r = rounding(i);
        for (size_t w = 0; w < sizeof WIDTHS / sizeof *WIDTHS; w++)
            check_rows(WIDTHS[w], &r);
    }
}

static Status round_row(Tensor *x, RowRounding r)
{
    Backend be;
    int32_t start[2] = {0, (int32_t)x->shape[0]};
    Batch   batch = {1, start, NUMBER};
    TRY(backend_open(&be, "cpu", 1));
    Status s = op_fakequant_rows(&be, x, &batch, &r);
    backend_close(&be);
    return s;
}

TEST(ties_go_to_even)
{
    REF_EACH_ISA(isa) {
        float x[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, 125.5f, 0.49999997f};
        const float want[] = {127, 0, 2, 2, 0, -2, -2, 126, 126, 0};
        Tensor t = tensor_2d(DTYPE_F32, x, 1, 10);
        T_STATUS_OK(round_row(&t, (RowRounding){.bits = 8}));
        T_OK(equal(x, want, 10));
        float y[] = {127.5f, -127.5f, 126.5f, -126.5f, 1.5f};
        const float wide[] = {127, -128, 126, -126, 2};
        t = tensor_2d(DTYPE_F32, y, 1, 5);
        T_STATUS_OK(round_row(&t, (RowRounding){.bits = 8, .wide = true}));
        T_OK(equal(y, wide, 5));
        float z[] = {-7, 7, 6.5f, 3.5f, -0.5f};
        const float four[] = {-7, 7, 6, 4, 0};
        t = tensor_2d(DTYPE_F32, z, 1, 5);
        T_STATUS_OK(round_row(&t, (RowRounding){.bits = 4}));
        T_OK(equal(z, four, 5));
    }
}

/* Magnitudes whose scale would be 0 become 0, and a row of zeros is no NaN. */
TEST(zeros_and_tiny_rows)
{
    REF_EACH_ISA(isa)
    for (int by = 0; by < 2; by++) {
        float x[34] = {0};
        x[17] = 1e-45f;
        x[20] = -4e-45f;
        Tensor t = tensor_2d(DTYPE_F32, x, 2, 17);
        T_STATUS_OK(round_row(&t, (RowRounding){.bits = 8, .by_sequence = by}));
        for (int i = 0; i < 34; i++)
            T_NEAR(x[i], 0, 0);
    }
}

static int64_t count_nan(const float *x, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += isnan(x[i]);
    return count;
}

TEST(nan_takes_what_shares_its_scale)
{
    const float BAD[] = {NAN, -NAN, INFINITY, -INFINITY};
    enum { K = 19 };
    REF_EACH_ISA(isa)
    for (int i = 0; i < 8; i++) {
        Arena   arena = {0};
        Backend be;
        Tensor  x = ref_normal(&arena, 9, K, 6);
        float  *values = x.data;
        RowRounding r = {8, i / 4, false};
        values[5 * K + (i % 2 ? 2 : 18)] = BAD[i % 4];   // in whole vectors, and after them
        float *want = copy_of(&arena, &x);
        want[5 * K + (i % 2 ? 2 : 18)] = 0;
        ref_rows(want, &BATCH, K, &r);
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_fakequant_rows(&be, &x, &BATCH, &r));
        int64_t first = r.by_sequence ? 4 : 5, end = r.by_sequence ? 9 : 6;
        T_OK(count_nan(values, 9 * K) == (end - first) * K);
        T_OK(count_nan(values + first * K, (end - first) * K) == (end - first) * K);
        T_OK(equal(values, want, first * K));
        T_OK(equal(values + end * K, want + end * K, (9 - end) * K));
        backend_close(&be);
        arena_close(&arena);
    }
}

/* --- keys and values --- */

/* n values, `step` apart, of one scale and minimum */
static void ref_grid(float *y, int64_t n, int64_t step, int bits)
{
    double low = y[0], high = y[0], levels = pow(2, bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        low = fmin(low, y[i * step]);
        high = fmax(high, y[i * step]);
    }
    float s = f((double)f(high - low) / levels);
    for (int64_t i = 0; i < n; i++) {
        double code = s > 0 ? f((double)f(y[i * step] - low) / s) : 0;
        code = nearbyint(clamp(code, 0, levels));
        y[i * step] = f((double)f(code * s) + low);
    }
}

static void ref_kv(float *k, float *v, const Batch *b, int64_t C, int64_t d, int bits)
{
    for (int64_t q = 0; q < b->n_sequences; q++)
        for (int64_t t = b->start[q]; t + KV_GROUP <= b->start[q + 1]; t += KV_GROUP) {
            for (int64_t c = 0; c < C; c++)
                ref_grid(k + t * C + c, KV_GROUP, C, bits);
            for (int64_t row = t; row < t + KV_GROUP; row++)
                for (int64_t c = 0; c < C; c += d)
                    for (int64_t i = 0; i < d; i += KV_GROUP)
                        ref_grid(v + row * C + c + i, d - i < KV_GROUP ? d - i : KV_GROUP, 1,
                                 bits);
        }
}

/* No whole group, one, one and a row, none at all, two and some. */
static const int32_t KV_START[] = {0, 31, 63, 96, 96, 170};
static const int64_t KV_NUMBER[] = {0, 1, 2, 3, 4};
static const Batch   KV_BATCH = {5, KV_START, KV_NUMBER};
enum { KV_ROWS = 170 };

static void check_kv(int64_t heads, int64_t d, int bits, int n_threads)
{
    Arena   arena = {0};
    Backend be;
    int64_t C = heads * d, n = KV_ROWS * C;
    Tensor  k = ref_normal(&arena, KV_ROWS, C, 7), v = ref_normal(&arena, KV_ROWS, C, 8);
    float  *keys = k.data, *values = v.data;
    for (int64_t t = 0; t < KV_ROWS; t++) {
        keys[t * C] = 3;                                // a channel of one value
        keys[t * C + C - 1] = 50 + keys[t * C + C - 1]; // one far from 0
    }
    float *k_want = copy_of(&arena, &k), *v_want = copy_of(&arena, &v);
    float *k_before = copy_of(&arena, &k), *v_before = copy_of(&arena, &v);
    ref_kv(k_want, v_want, &KV_BATCH, C, d, bits);
    T_STATUS_OK(backend_open(&be, "cpu", n_threads));
    T_STATUS_OK(op_fakequant_kv(&be, &k, &v, &KV_BATCH, d, bits));
    T_OK(equal(keys, k_want, n) && equal(values, v_want, n));
    T_OK(ref_guards_hold(keys, n) && ref_guards_hold(values, n));
    T_OK(same(keys, k_before, 31 * C) && same(values, v_before, 31 * C));
    T_OK(same(keys + 95 * C, k_before + 95 * C, C));
    T_OK(same(values + 160 * C, v_before + 160 * C, 10 * C));
    T_OK(!same(keys + 159 * C, k_before + 159 * C, C));
    backend_close(&be);
    arena_close(&arena);
}

TEST(keys_and_values_are_the_definition)
{
    const int64_t DIMS[] = {1, 5, 16, 20, 32, 33, 64, 80};
    REF_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof DIMS / sizeof *DIMS; i++) {
        check_kv(3, DIMS[i], 4, 1);
        check_kv(4, DIMS[i], 8, 3);
    }
}

TEST(nan_in_a_key_takes_its_channel_and_in_a_value_its_span)
{
    const float BAD[] = {NAN, INFINITY, -INFINITY};
    enum { D = 40, C = 2 * D };
    REF_EACH_ISA(isa)
    for (int i = 0; i < 3; i++) {
        Arena   arena = {0};
        Backend be;
        Tensor  k = ref_normal(&arena, KV_ROWS, C, 7), v = ref_normal(&arena, KV_ROWS, C, 8);
        float  *keys = k.data, *values = v.data;
        keys[40 * C + 5] = BAD[i];                   // group of rows 31 to 62
        values[40 * C + D + 33 + i] = BAD[i];        // channels 32 to 39 of the second head
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_fakequant_kv(&be, &k, &v, &KV_BATCH, D, 4));
        T_OK(count_nan(keys, KV_ROWS * C) == KV_GROUP);
        for (int t = 31; t < 63; t++)
            T_OK(isnan(keys[t * C + 5]));
        T_OK(count_nan(values, KV_ROWS * C) == 8);
        T_OK(count_nan(values + 40 * C + D + 32, 8) == 8);
        backend_close(&be);
        arena_close(&arena);
    }
}

/* --- neighbours, threads --- */

/* A sequence alone, with one thread, and among others, with three: the same bits. Large
 * enough for threads to start. */
TEST(neighbours_and_threads_change_nothing)
{
    enum { T = 70, K = 1000 };
    REF_EACH_ISA(isa)
    for (int i = 0; i < 4; i++) {
        Arena   arena = {0};
        Backend be;
        int32_t many[] = {0, T, 2 * T, 3 * T}, one[] = {0, T};
        Batch   three = {3, many, NUMBER}, single = {1, one, NUMBER};
        Tensor  x = ref_normal(&arena, 3 * T, K, 11), y = ref_normal(&arena, 3 * T, K, 12);
        float  *alone = copy_of(&arena, &x) + T * K, *values = copy_of(&arena, &y) + T * K;
        Tensor  a = tensor_2d(DTYPE_F32, alone, T, K), b = tensor_2d(DTYPE_F32, values, T, K);
        RowRounding r = {8, i % 2, false};
        T_STATUS_OK(backend_open(&be, "cpu", 3));
        T_STATUS_OK(i < 2 ? op_fakequant_rows(&be, &x, &three, &r)
                          : op_fakequant_kv(&be, &x, &y, &three, 100, 4));
        backend_close(&be);
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(i < 2 ? op_fakequant_rows(&be, &a, &single, &r)
                          : op_fakequant_kv(&be, &a, &b, &single, 100, 4));
        backend_close(&be);
        T_OK(same((float *)x.data + T * K, alone, T * K));
        T_OK(i < 2 || same((float *)y.data + T * K, values, T * K));
        arena_close(&arena);
    }
}

TEST(what_does_not_fit_is_refused)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_normal(&arena, 9, 6, 1), y = ref_normal(&arena, 9, 12, 1);
    Batch   less = {3, START, NUMBER};
    RowRounding eight = {8, false, false}, five = {5, false, false};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_FAILS(op_fakequant_rows(&be, &x, &BATCH, &five), ERR_UNSUPPORTED, "5 bits, expected 8, 6");
    T_FAILS(op_fakequant_rows(&be, &x, &less, &eight), ERR_SHAPE, "cover rows 0 to 9");
    T_FAILS(op_fakequant_kv(&be, &x, &x, &BATCH, 3, 6), ERR_UNSUPPORTED, "6 bits, expected 8");
    T_FAILS(op_fakequant_kv(&be, &x, &y, &BATCH, 3, 8), ERR_SHAPE, "v is F32 [9,12]");
    T_FAILS(op_fakequant_kv(&be, &x, &x, &BATCH, 4, 8), ERR_SHAPE, "heads of 4 in rows of 6");
    T_FAILS(op_fakequant_kv(&be, &x, &x, &less, 3, 8), ERR_SHAPE, "cover rows 0 to 9");
    backend_close(&be);
    arena_close(&arena);
}
