/* test_op_rope.c - rotary positions against double, halves on both sides of 4, 8, 16. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

static const struct {
    int64_t heads, d, half;
} SIZES[] = {{1, 2, 1},   {3, 8, 3},   {2, 64, 32}, {5, 80, 20},
             {1, 37, 17}, {4, 32, 16}, {2, 5, 0}};

enum { T = 19, P = 50 };

static void fill_angles(Tensor *cs, Tensor *sn)
{
    for (int64_t i = 0; i < tensor_count(cs); i++) {
        ((float *)cs->data)[i] = cosf((float)i * 0.7f);
        ((float *)sn->data)[i] = sinf((float)i * 0.7f);
    }
}

static void check_size(int64_t heads, int64_t d, int64_t half, int n_threads)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_normal(&arena, T, heads * d, 8), before = ref_empty(&arena, T, heads * d);
    Tensor  cs = ref_empty(&arena, P, half), sn = ref_empty(&arena, P, half);
    double *want = arena_alloc(&arena, d, sizeof *want);
    int32_t positions[T];
    for (int t = 0; t < T; t++)
        positions[t] = (t * 31) % P;
    fill_angles(&cs, &sn);
    memcpy(before.data, x.data, tensor_bytes(&x));
    T_STATUS_OK(backend_open(&be, "cpu", n_threads));
    T_STATUS_OK(op_rope(&be, &x, heads, &cs, &sn, positions));
    for (int64_t i = 0; i < T * heads; i++) {
        int64_t row = positions[i / heads] * half;
        ref_rope(want, (float *)before.data + i * d, (float *)cs.data + row,
                 (float *)sn.data + row, d, half);
        /* Two products and a sum of numbers below 5: three roundings. */
        T_NEAR(ref_worst((float *)x.data + i * d, want, d), 0, 1e-6);
        for (int64_t j = 2 * half; j < d; j++)
            T_OK(((float *)x.data)[i * d + j] == ((float *)before.data)[i * d + j]);
    }
    T_OK(ref_guards_hold(x.data, T * heads * d));
    backend_close(&be);
    arena_close(&arena);
}

TEST(rope_agrees_with_double_and_leaves_the_rest)
{
    REF_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        check_size(SIZES[i].heads, SIZES[i].d, SIZES[i].half, 1 + (int)i % 2);
}

TEST(rope_checks_shapes_and_positions)
{
    Arena   arena = {0};
    Backend be;
    Tensor  x = ref_normal(&arena, 2, 12, 8);
    Tensor  cs = ref_normal(&arena, 5, 2, 1), sn = ref_normal(&arena, 5, 2, 1);
    Tensor  short_sn = ref_normal(&arena, 4, 2, 1), wide = ref_normal(&arena, 5, 3, 1);
    int32_t good[2] = {0, 4}, past[2] = {0, 5}, negative[2] = {-1, 0};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_STATUS_OK(op_rope(&be, &x, 3, &cs, &sn, good));
    T_FAILS(op_rope(&be, &x, 3, &cs, &short_sn, good), ERR_SHAPE, "rope: sn is F32 [4,2]");
    T_FAILS(op_rope(&be, &x, 5, &cs, &sn, good), ERR_SHAPE, "rows of 12 in 5 heads");
    T_FAILS(op_rope(&be, &x, 0, &cs, &sn, good), ERR_SHAPE, "in 0 heads");
    T_FAILS(op_rope(&be, &x, 3, &wide, &wide, good), ERR_SHAPE, "6 dims to turn");
    T_FAILS(op_rope(&be, &x, 3, &cs, &sn, past), ERR_RANGE, "position 1 is 5, expected 0 to 4");
    T_FAILS(op_rope(&be, &x, 3, &cs, &sn, negative), ERR_RANGE, "position 0 is -1");
    backend_close(&be);
    arena_close(&arena);
}
