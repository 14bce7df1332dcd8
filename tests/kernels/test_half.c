/* test_half.c - every f16 and bf16 there is, and every rounding between two. */
#include <math.h>

#include "kernels/half.h"
#include "tests/check.h"

/* Value of f16 bits by its definition. */
static double f16_value(uint16_t h)
{
    int    exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                 : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

TEST(f16_to_f32_of_all_bits)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float  x = f16_to_f32((uint16_t)h);
        double want = f16_value((uint16_t)h);
        T_OK(isnan(want) ? isnan(x) : (double)x == want);
        T_OK(!!(f32_bits(x) >> 31) == !!(h & 0x8000));
    }
}

TEST(f16_survives_a_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t back = f16_from_f32(f16_to_f32((uint16_t)h));
        if ((h & 0x7fff) > 0x7c00)
            T_OK((back & 0x7fff) > 0x7c00);
        else
            T_OK(back == h);
    }
}

/* Halfway between h and the next, and the floats beside it. */
TEST(f16_rounds_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = f16_value((uint16_t)h);
        double high = h == 0x7bff ? 65536 : f16_value((uint16_t)(h + 1));
        float  middle = (float)((low + high) / 2);  // exact: one bit more
        T_OK(f16_from_f32(nextafterf(middle, 0)) == h);
        T_OK(f16_from_f32(nextafterf(middle, INFINITY)) == h + 1);
        T_OK(f16_from_f32(middle) == (h & 1 ? h + 1 : h));
        T_OK(f16_from_f32(-middle) == ((h & 1 ? h + 1 : h) | 0x8000));
    }
    T_OK(f16_from_f32(INFINITY) == 0x7c00 && f16_from_f32(-INFINITY) == 0xfc00);
    T_OK(f16_from_f32(3e38f) == 0x7c00);
    T_OK(f16_from_f32(1e-40f) == 0 && f16_from_f32(-1e-40f) == 0x8000);
}

TEST(bf16_survives_a_round_trip)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = bf16_to_f32((uint16_t)h);
        T_OK(f32_bits(x) == h << 16);
        if ((h & 0x7fff) > 0x7f80)
            T_OK(bf16_from_f32(x) == (h | 0x40));  // NaN, made quiet
        else
            T_OK(bf16_from_f32(x) == h);
    }
}

TEST(bf16_rounds_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t middle = h << 16 | 0x8000;
        T_OK(bf16_from_f32(f32_from_bits(middle - 1)) == h);
        T_OK(bf16_from_f32(f32_from_bits(middle + 1)) == h + 1);
        T_OK(bf16_from_f32(f32_from_bits(middle)) == (h & 1 ? h + 1 : h));
        T_OK(bf16_from_f32(f32_from_bits(middle | 0x80000000u)) ==
             ((h & 1 ? h + 1 : h) | 0x8000));
    }
}

TEST(bf16_of_nan_is_nan_whatever_its_bits)
{
    const uint32_t BITS[] = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7f80ffff};
    for (int i = 0; i < 5; i++) {
        T_OK(isnan(bf16_round(f32_from_bits(BITS[i]))));
        T_OK(isnan(f16_to_f32(f16_from_f32(f32_from_bits(BITS[i])))));
    }
    T_OK(bf16_from_f32(3.4e38f) == 0x7f80);  // above the largest bf16
}
