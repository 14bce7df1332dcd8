/* test_embed.c - rows of the table, and the residual sum. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

TEST(embed_copies_the_rows_asked_for)
{
    enum { V = 11, T = 5 };
    const int64_t WIDTHS[] = {1, 7, 20000};
    const int32_t IDS[T] = {10, 0, 3, 3, 9};
    for (int i = 0; i < 3; i++) {
        Arena   arena = {0};
        Backend be;
        int64_t C = WIDTHS[i];
        Tensor  table = ref_normal(&arena, V, C, 1), y = ref_empty(&arena, T, C);
        T_STATUS_OK(backend_open(&be, "cpu", 2));
        T_STATUS_OK(op_embed(&be, &y, &table, IDS));
        for (int t = 0; t < T; t++)
            T_OK(memcmp((float *)y.data + t * C, (float *)table.data + IDS[t] * C,
                        (size_t)C * sizeof(float)) == 0);
        T_OK(ref_guards_hold(y.data, T * C));
        backend_close(&be);
        arena_close(&arena);
    }
}

TEST(embed_names_an_id_outside_the_table)
{
    Arena   arena = {0};
    Backend be;
    Tensor  table = ref_normal(&arena, 11, 3, 1), y = ref_empty(&arena, 2, 3);
    Tensor  wide = ref_empty(&arena, 2, 4);
    int32_t past[2] = {0, 11}, negative[2] = {-1, 0};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_FAILS(op_embed(&be, &y, &table, past), ERR_RANGE,
            "embed: token id 1 is 11, expected 0 to 10");
    T_FAILS(op_embed(&be, &y, &table, negative), ERR_RANGE, "embed: token id 0 is -1");
    T_OK(isnan(*(float *)y.data));
    T_FAILS(op_embed(&be, &wide, &table, past), ERR_SHAPE, "embed: y is F32 [2,4]");
    backend_close(&be);
    arena_close(&arena);
}

static void check_add(int64_t T, int64_t C, int n_threads)
{
    Arena   arena = {0};
    Backend be;
    Tensor  y = ref_normal(&arena, T, C, 1), x = ref_normal(&arena, T, C, 2);
    Tensor  before = ref_normal(&arena, T, C, 1);
    ((float *)x.data)[T * C - 1] = NAN;
    T_STATUS_OK(backend_open(&be, "cpu", n_threads));
    T_STATUS_OK(op_add(&be, &y, &x));
    for (int64_t i = 0; i < T * C - 1; i++)
        T_OK(((float *)y.data)[i] == ((float *)before.data)[i] + ((float *)x.data)[i]);
    T_OK(isnan(((float *)y.data)[T * C - 1]));
    T_OK(ref_guards_hold(y.data, T * C));
    backend_close(&be);
    arena_close(&arena);
}

TEST(add_is_the_rounded_sum)
{
    REF_EACH_ISA(isa)
    {
        check_add(1, 1, 1);
        check_add(3, 5, 2);
        check_add(7, 4096, 2);
        check_add(11, 4099, 1);
    }
}

TEST(add_checks_shapes)
{
    Arena   arena = {0};
    Backend be;
    Tensor  a = ref_normal(&arena, 2, 3, 1), b = ref_normal(&arena, 3, 2, 1);
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_FAILS(op_add(&be, &a, &b), ERR_SHAPE,
            "add: F32 [3,2] to F32 [2,3], expected F32 of one shape");
    b = a;
    b.dtype = DTYPE_F16;
    T_FAILS(op_add(&be, &a, &b), ERR_SHAPE, "add: F16 [2,3]");
    backend_close(&be);
    arena_close(&arena);
}
