/* test_cuda_fakequant.c - rounding of inputs and of keys and values: the GPU's bits are the
 * CPU's, whose own tests hold them against the definition. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda_twin.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

/* Equal bits; NaN is equal to NaN. */
static bool same(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
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

enum { T = 9 };
static const int32_t START[] = {0, 3, 3, 4, T};    // one of them is empty
static const int64_t NUMBER[] = {0, 1, 2, 3, 4};
static const Batch   BATCH = {4, START, NUMBER};

/* Every way to round x [T,K], on both devices. */
static void check_rows(const Tensor *x, int64_t shift)
{
    static const int BITS[] = {8, 6, 4};
    Arena   arena = {0};
    Backend cpu, be;
    int64_t K = x->shape[1];
    float  *got = ref_guarded(&arena, T * K);
    T_GPU(&be);
    T_STATUS_OK(backend_open(&cpu, "cpu", 1));
    for (int i = 0; i < 12; i++) {
        RowRounding r = {BITS[i % 3], i / 3 % 2, i / 6};
        Tensor want = tensor_2d(DTYPE_F32, copy_of(&arena, x), T, K), y;
        bool   whole;
        T_STATUS_OK(op_fakequant_rows(&cpu, &want, &BATCH, &r));
        T_STATUS_OK(ref_cuda_tensor(&be, &y, x->data, T, K, shift));
        T_STATUS_OK(op_fakequant_rows(&be, &y, &BATCH, &r));
        T_STATUS_OK(ref_cuda_read(&be, got, &y, &whole));
        T_OK(whole);
        T_OK(same(got, want.data, T * K));
    }
    backend_close(&cpu);
    backend_close(&be);
    arena_close(&arena);
}

TEST(rows_of_ragged_widths)
{
    static const int64_t WIDTHS[] = {1, 3, 31, 33, 255, 256, 257, 515};
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++) {
        Arena   arena = {0};
        int64_t K = WIDTHS[i];
        Tensor  x = ref_normal(&arena, T, K, 5 + i);
        float  *values = x.data;
        for (int64_t k = 0; k < K; k++) {
            values[2 * K + k] *= 100;     // rows and sequences of other sizes
            values[3 * K + k] = 0;        // a sequence of one row, and of zeros
        }
        values[7 * K + K - 1] = -30;      // the last value is the largest
        check_rows(&x, (int64_t)i % 3);
        arena_close(&arena);
    }
}

/* Ties, values at the clamp, the smallest there are. */
TEST(rows_that_hurt)
{
    enum { K = 40 };
    static const float TOP[T] = {127, 127.5f, -128, 7, -7.5f, 1e-45f, -1e-40f, 1e30f, 3.4e38f};
    Arena  arena = {0};
    Tensor x = ref_normal(&arena, T, K, 1);
    float *values = x.data;
    for (int t = 0; t < T; t++)
        for (int k = 0; k < K; k++)
            values[t * K + k] = k == 11 ? TOP[t] : t < 5 ? (float)(k - 20) / 2 : TOP[t] / 40 * k;
    check_rows(&x, 1);
    values[1 * K + 39] = NAN, values[5 * K] = INFINITY, values[6 * K + 20] = -INFINITY;
    check_rows(&x, 0);
    values[6 * K + 21] = -NAN;
    check_rows(&x, 0);
    arena_close(&arena);
}

/* x' = scale code, of every value; where nothing asks for codes there are none. */
static void check_twin(int64_t K, RowRounding r)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_normal(&arena, T, K, 4), y;
    float  *values = x.data, *back = ref_guarded(&arena, T * K), scales[T];
    bool    whole;
    T_GPU(&be);
    memset(values + 3 * K, 0, (size_t)K * sizeof *values);
    values[6 * K + K - 1] = NAN;
    values[1 * K] = -INFINITY;
    T_STATUS_OK(cuda_twin_want(&be));
    T_STATUS_OK(ref_cuda_tensor(&be, &y, values, T, K, 0));
    T_STATUS_OK(op_fakequant_rows(&be, &y, &BATCH, &r));
    const CudaTwin *twin = cuda_twin_of(cuda_state(&be), &y);
    T_OK((twin != NULL) == (r.bits == 8));
    if (!twin) {
        backend_close(&be);
        arena_close(&arena);
        return;
    }
    int8_t *codes = arena_alloc(&arena, T * twin->row_bytes, 1);
    T_STATUS_OK(cuda_fetch(&be, codes, twin->codes, (size_t)(T * twin->row_bytes)));
    T_STATUS_OK(cuda_fetch(&be, scales, twin->scales, sizeof scales));
    T_STATUS_OK(ref_cuda_read(&be, back, &y, &whole));
    for (int t = 0; t < T; t++)
        for (int64_t k = 0; k < K; k++) {
            int8_t code = codes[t * twin->row_bytes + cuda_twin_place(k)];
            float  got = scales[t] * (float)code;
            T_OK(isnan(scales[t]) ? isnan(back[t * K + k]) && code == 0
                                  : got == back[t * K + k]);
        }
    T_OK(scales[3] == 0 && isnan(scales[6]) && isnan(scales[1]));
    backend_close(&be);
    arena_close(&arena);
}

TEST(codes_beside_the_rounded_rows)
{
    static const int64_t WIDTHS[] = {64, 100, 259};
    for (int i = 0; i < 3; i++) {
        check_twin(WIDTHS[i], (RowRounding){.bits = 8});
        check_twin(WIDTHS[i], (RowRounding){.bits = 8, .wide = true});
        check_twin(WIDTHS[i], (RowRounding){.bits = 8, .by_sequence = true});
        check_twin(WIDTHS[i], (RowRounding){.bits = 4});
    }
}

/* --- keys and values --- */

/* No whole group, one, one and a row, none at all, two and some. */
static const int32_t KV_START[] = {0, 31, 63, 96, 96, 170};
static const Batch   KV_BATCH = {5, KV_START, NUMBER};
enum { KV_ROWS = 170 };

static void check_kv(const Tensor *k, const Tensor *v, int64_t d, int bits)
{
    Arena   arena = {0};
    Backend cpu, be;
    int64_t C = k->shape[1], n = KV_ROWS * C;
    Tensor  want[2], got[2];
    float  *back = ref_guarded(&arena, n);
    T_GPU(&be);
    T_STATUS_OK(backend_open(&cpu, "cpu", 1));
    for (int i = 0; i < 2; i++) {
        const Tensor *x = i ? v : k;
        want[i] = tensor_2d(DTYPE_F32, copy_of(&arena, x), KV_ROWS, C);
        T_STATUS_OK(ref_cuda_tensor(&be, &got[i], x->data, KV_ROWS, C, 1 + i));
    }
    T_STATUS_OK(op_fakequant_kv(&cpu, &want[0], &want[1], &KV_BATCH, d, bits));
    T_STATUS_OK(op_fakequant_kv(&be, &got[0], &got[1], &KV_BATCH, d, bits));
    for (int i = 0; i < 2; i++) {
        bool whole;
        T_STATUS_OK(ref_cuda_read(&be, back, &got[i], &whole));
        T_OK(whole);
        T_OK(same(back, want[i].data, n));
    }
    backend_close(&cpu);
    backend_close(&be);
    arena_close(&arena);
}

TEST(keys_and_values_of_ragged_heads)
{
    static const int64_t DIMS[] = {1, 5, 32, 33, 80, 90};
    for (size_t i = 0; i < sizeof DIMS / sizeof *DIMS; i++) {
        Arena   arena = {0};
        int64_t C = 3 * DIMS[i];
        Tensor  k = ref_normal(&arena, KV_ROWS, C, 7), v = ref_normal(&arena, KV_ROWS, C, 8);
        float  *keys = k.data;
        for (int64_t t = 0; t < KV_ROWS; t++) {
            keys[t * C] = 3;                                 // a channel of one value
            keys[t * C + C - 1] = 50 + keys[t * C + C - 1];  // one far from 0
        }
        check_kv(&k, &v, DIMS[i], i % 2 ? 8 : 4);
        arena_close(&arena);
    }
}

TEST(keys_and_values_that_hurt)
{
    enum { D = 40, C = 2 * D };
    Arena  arena = {0};
    Tensor k = ref_normal(&arena, KV_ROWS, C, 9), v = ref_normal(&arena, KV_ROWS, C, 10);
    float *keys = k.data, *values = v.data;
    keys[40 * C + 5] = NAN, keys[41 * C + 6] = INFINITY, keys[97 * C + 70] = -INFINITY;
    keys[42 * C + 7] = 3.4e38f, keys[43 * C + 7] = -3.4e38f;     // their difference is infinite
    values[40 * C + D + 33] = NAN, values[44 * C + 31] = INFINITY, values[44 * C + 32] = 2;
    values[50 * C] = 3e38f, values[50 * C + 31] = -3e38f;
    for (int c = 0; c < 32; c++) {
        values[51 * C + c] = c % 2 ? -0.0f : 0;
        values[52 * C + c] = (float)c / 2;                       // steps and ties
        values[53 * C + c] = 1e-45f * (float)c;
        keys[(31 + c) * C] = (float)(c % 16) + 0.5f;
    }
    check_kv(&k, &v, D, 4);
    check_kv(&k, &v, D, 8);
    arena_close(&arena);
}

TEST(nothing_to_round)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x, y;
    int32_t none[2] = {0, 0}, few[2] = {0, 5};
    float   back[5 * 4], *before = ref_normal(&arena, 5, 4, 1).data;
    bool    whole;
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_exact(&be, &x, NULL, 0, 8));
    T_STATUS_OK(op_fakequant_rows(&be, &x, &(Batch){1, none, NUMBER}, &(RowRounding){.bits = 8}));
    T_STATUS_OK(op_fakequant_kv(&be, &x, &x, &(Batch){1, none, NUMBER}, 4, 8));
    T_STATUS_OK(ref_cuda_tensor(&be, &y, before, 5, 4, 0));
    T_STATUS_OK(op_fakequant_kv(&be, &y, &y, &(Batch){1, few, NUMBER}, 4, 8));
    T_STATUS_OK(ref_cuda_read(&be, back, &y, &whole));
    T_OK(whole && same(back, before, 5 * 4));
    backend_close(&be);
    arena_close(&arena);
}
