/* half.h - f16 and bf16 to and from f32, one value at a time.
 * To 16 bits: round to nearest, ties to even; NaN stays NaN (quiet). */
#ifndef DQ_HALF_H
#define DQ_HALF_H

#include <stdint.h>
#include <string.h>
#ifdef __F16C__   // in *_isa.c: the processor's own conversion of one number
#include <immintrin.h>
#endif

static inline uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float bf16_round(float x)
{
    return bf16_to_f32(bf16_from_f32(x));
}

/* f16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31, fraction = h & 0x3ff;
#ifdef __F16C__
    if (exponent != 31)
        return _cvtsh_ss(h);
#endif
    if (exponent == 31)
        return f32_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent)
        return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f;  // subnormal, exact in f32
    return sign ? -tiny : tiny;
}

static inline uint16_t f16_from_f32(float x)
{
    uint32_t u = f32_bits(x), sign = (u >> 16) & 0x8000;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00);
#ifdef __F16C__
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#endif
    if (u >= 0x477ff000u)  // 65520 and up round to infinity
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000u) {  // below 2^-14: count in units of 2^-24
        float scaled = f32_from_bits(u) * 0x1p24f;
        uint32_t n = (uint32_t)scaled;
        float rest = scaled - (float)n;
        n += rest > 0.5f || (rest == 0.5f && (n & 1));
        return (uint16_t)(sign | n);
    }
    u += 0xfffu + ((u >> 13) & 1);
    return (uint16_t)(sign | ((u - (112u << 23)) >> 13));
}

#endif
