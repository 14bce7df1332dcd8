/* test_tensor.c - sizes, names, conversion. */
#include <math.h>

#include "kernels/half.h"
#include "kernels/tensor.h"
#include "tests/check.h"

TEST(dtype_names_go_both_ways)
{
    for (int d = 0; d < N_DTYPES; d++) {
        Dtype back = N_DTYPES;
        T_STATUS_OK(dtype_parse(&back, dtype_name((Dtype)d)));
        T_OK(back == (Dtype)d);
    }
    Dtype untouched = DTYPE_I8;
    T_FAILS(dtype_parse(&untouched, "F8_E4M3"), ERR_UNSUPPORTED, "unknown dtype \"F8_E4M3\"");
    T_FAILS(dtype_parse(&untouched, ""), ERR_UNSUPPORTED, "unknown dtype");
    T_FAILS(dtype_parse(&untouched, "f32"), ERR_UNSUPPORTED, "unknown dtype");
    T_OK(untouched == DTYPE_I8);
}

TEST(dtype_sizes)
{
    T_OK(dtype_size(DTYPE_F32) == 4 && dtype_size(DTYPE_BF16) == 2);
    T_OK(dtype_size(DTYPE_F64) == 8 && dtype_size(DTYPE_BOOL) == 1);
    T_OK(dtype_size(DTYPE_I16) == 2 && dtype_size(DTYPE_U64) == 8);
}

TEST(tensor_counts_and_shapes)
{
    char   text[128];
    Tensor scalar = {.dtype = DTYPE_F64}, m = tensor_2d(DTYPE_F16, NULL, 3, 5);
    T_OK(tensor_count(&scalar) == 1 && tensor_bytes(&scalar) == 8);
    T_OK(tensor_count(&m) == 15 && tensor_bytes(&m) == 30);
    T_TEXT(tensor_shape_text(&scalar, text), "[]");
    T_TEXT(tensor_shape_text(&m, text), "[3,5]");
    Tensor v = tensor_1d(DTYPE_F32, NULL, 0);
    T_OK(tensor_count(&v) == 0);
    T_TEXT(tensor_shape_text(&v, text), "[0]");
    Tensor wide = {.n_dims = TENSOR_MAX_DIMS};
    for (int i = 0; i < TENSOR_MAX_DIMS; i++)
        wide.shape[i] = INT64_MAX;  // the longest text there is
    tensor_shape_text(&wide, text);
    T_OK(__builtin_strlen(text) == 6 * 19 + 5 + 2);
}

TEST(tensor_converts_a_part)
{
    float    full[4] = {1, 2, 3, 4}, out[2];
    uint16_t half[4], brain[4];
    for (int i = 0; i < 4; i++) {
        half[i] = f16_from_f32(full[i]);
        brain[i] = bf16_from_f32(full[i]);
    }
    Tensor all[3] = {tensor_1d(DTYPE_F32, full, 4), tensor_1d(DTYPE_F16, half, 4),
                     tensor_1d(DTYPE_BF16, brain, 4)};
    for (int i = 0; i < 3; i++) {
        out[0] = out[1] = NAN;
        T_STATUS_OK(tensor_to_f32(out, &all[i], 1, 2));
        T_OK(out[0] == 2 && out[1] == 3);
    }
    Tensor whole = tensor_1d(DTYPE_I32, full, 4);
    T_FAILS(tensor_to_f32(out, &whole, 0, 1), ERR_UNSUPPORTED, "dtype I32");
}
