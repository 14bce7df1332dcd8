/* narrow.c - rounds f32 to the dtype of a file and minds what does not fit. */
#include "quant/formats/narrow.h"

#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"

enum { CHUNK = 16384 };  // numbers a thread takes at once

/* The exponent bits that infinities and NaN have, and they alone. */
static bool is_finite_f32(float x)
{
    return (f32_bits(x) & 0x7f800000u) != 0x7f800000u;
}

/* One chunk; true where a number is not finite once stored. */
static bool narrow_chunk(unsigned char *out, Dtype d, const float *x, int64_t n)
{
    bool     bad = false;
    uint16_t half;
    switch (d) {
    case DTYPE_F32:
        memcpy(out, x, (size_t)n * sizeof *x);
        for (int64_t i = 0; i < n; i++)
            bad |= !is_finite_f32(x[i]);
        return bad;
    case DTYPE_F16:
        for (int64_t i = 0; i < n; i++) {
            half = f16_from_f32(x[i]);
            memcpy(out + 2 * i, &half, 2);
            bad |= (half & 0x7c00) == 0x7c00;
        }
        return bad;
    default:
        CHECK(d == DTYPE_BF16);
        for (int64_t i = 0; i < n; i++) {
            half = bf16_from_f32(x[i]);
            memcpy(out + 2 * i, &half, 2);
            bad |= (half & 0x7f80) == 0x7f80;
        }
        return bad;
    }
}

int64_t narrow_f32(void *out, Dtype d, const float *x, int64_t n)
{
    unsigned char *bytes = out;
    size_t         size = dtype_size(d);
    int64_t        bad = n;
#pragma omp parallel for schedule(static) reduction(min : bad) if (n > 16 * CHUNK)
    for (int64_t first = 0; first < n; first += CHUNK)
        if (narrow_chunk(bytes + (size_t)first * size, d, x + first, i64_min(CHUNK, n - first)))
            bad = i64_min(bad, first);
    /* The chunk is known: look for the number in it. */
    unsigned char one[4];
    while (bad < n && !narrow_chunk(one, d, x + bad, 1))
        bad++;
    return bad;
}
