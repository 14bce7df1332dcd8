/* test_halves.c - conversions of many numbers: those of half.h, one by one. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/halves.h"
#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

enum { ALL = 1 << 16 };

static uint16_t halves[ALL];
static float    wide[ALL + 1];

static bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : f32_bits(a) == f32_bits(b);
}

/* Every half there is, in parts that begin and end anywhere, from odd addresses too. */
TEST(every_half_to_f32)
{
    CpuIsa  isa = N_CPU_ISAS;
    uint8_t odd[2 * 100 + 1];
    for (int i = 0; i < ALL; i++)
        halves[i] = (uint16_t)i;
    while (ref_next_isa(&isa))
        for (int bf = 0; bf < 2; bf++) {
            Dtype d = bf ? DTYPE_BF16 : DTYPE_F16;
            T_OK(!halves_to_f32(wide, d, halves, ALL));
            for (int i = 0; i < ALL; i++)
                T_OK(same(wide[i], bf ? bf16_to_f32(halves[i]) : f16_to_f32(halves[i])));
            for (int n = 0; n < 100; n++) {
                int first = 0x3c00 + 7 * n;
                memcpy(odd + 1, halves + first, (size_t)(2 * n));
                wide[n] = -7;
                T_OK(halves_to_f32(wide, d, odd + 1, n));
                for (int i = 0; i < n; i++)
                    T_OK(same(wide[i], bf ? bf16_to_f32(halves[first + i])
                                          : f16_to_f32(halves[first + i])));
                T_OK(wide[n] == -7);
            }
        }
}

/* Halves, the middles between them, and the numbers beside those. */
static void fill_middles(bool bf)
{
    for (int i = 0; i < ALL; i++) {
        uint16_t h = (uint16_t)(i & ~3);
        float    low = bf ? bf16_to_f32(h) : f16_to_f32(h);
        float    high = bf ? bf16_to_f32(h + 1) : f16_to_f32(h + 1);
        float    middle = 0.5f * low + 0.5f * high;
        float    beside = nextafterf(middle, i % 4 == 2 ? low : high);
        wide[i] = i % 4 == 0 ? low : i % 4 == 1 ? middle : beside;
    }
}

TEST(rounding_is_that_of_one_number)
{
    CpuIsa   isa = N_CPU_ISAS;
    uint16_t out[ALL];
    while (ref_next_isa(&isa))
        for (int bf = 0; bf < 2; bf++) {
            Dtype d = bf ? DTYPE_BF16 : DTYPE_F16;
            fill_middles(bf);
            T_OK(!halves_from_f32(out, d, wide, ALL));
            for (int i = 0; i < ALL; i++)
                T_OK(isnan(wide[i]) ? isnan(bf ? bf16_to_f32(out[i]) : f16_to_f32(out[i]))
                     : out[i] == (bf ? bf16_from_f32(wide[i]) : f16_from_f32(wide[i])));
        }
}

/* One that is not finite, at every place of a vector and in the rest after the last. */
TEST(what_is_not_finite_is_told)
{
    CpuIsa  isa = N_CPU_ISAS;
    uint8_t out[4 * 70 + 1], in[4 * 70 + 1];
    while (ref_next_isa(&isa))
        for (int n = 1; n < 70; n += 3)
            for (int bad = 0; bad < n; bad++)
                for (Dtype d = DTYPE_F32; d <= DTYPE_BF16; d++) {
                    float beyond = d == DTYPE_F32   ? INFINITY
                                   : d == DTYPE_F16 ? -65520
                                                    : 3.4e38f;
                    for (int i = 0; i < n; i++)
                        wide[i] = 1 + (float)i;
                    out[dtype_size(d) * (size_t)n] = 0xa5;
                    T_OK(halves_from_f32(out, d, wide, n));
                    T_OK(out[dtype_size(d) * (size_t)n] == 0xa5);
                    wide[bad] = bad % 2 ? NAN : beyond;
                    T_OK(!halves_from_f32(out, d, wide, n));
                    memcpy(in + 1, out, sizeof out - 1);
                    T_OK(!halves_to_f32(wide, d, in + 1, n));
                }
}
