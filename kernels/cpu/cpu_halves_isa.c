/* cpu_halves_isa.c - F32, F16 and BF16 to f32 and back.
 * shapes  any n; addresses of any alignment
 * cost    6 bytes a number, less than an operation a byte: memory bound
 * NaN     stays NaN; one from F16 is quiet after the processor's own conversion
 * test    tests/kernels/test_halves.c, every half and every instruction set */
#include <string.h>

#include "kernels/cpu/cpu_halves.h"
#include "kernels/half.h"
#include "kernels/vec.h"

typedef uint16_t Halves __attribute__((vector_size(2 * VEC)));
typedef uint16_t HalvesAt __attribute__((vector_size(2 * VEC), aligned(1), may_alias));
typedef int32_t  WordsAt __attribute__((vector_size(4 * VEC), aligned(1), may_alias));

/* The largest bits of magnitudes seen: infinity and NaN have those of infinity or more. */
ALWAYS Ivec top_of(Ivec top, Ivec bits)
{
    return ivec_max(top, bits & 0x7fffffff);
}

ALWAYS bool is_below_infinity(Ivec top)
{
    return ivec_top(top) < 0x7f800000;
}

ALWAYS Halves narrow_bits(Uvec bits)
{
#if DQ_ISA_avx512
    return (Halves)_mm512_cvtepi32_epi16((__m512i)bits);
#else
    return __builtin_convertvector(bits, Halves);
#endif
}

/* --- one vector --- */

ALWAYS Ivec open_f32(const void *in)
{
    return *(const WordsAt *)in;
}

ALWAYS Ivec open_bf16(const void *in)
{
    Halves h = *(const HalvesAt *)in;
    return (Ivec)(__builtin_convertvector(h, Uvec) << 16);
}

ALWAYS Ivec open_f16(const void *in)
{
#if DQ_ISA_avx512
    return (Ivec)_mm512_cvtph_ps(_mm256_loadu_si256(in));
#elif DQ_ISA_avx2
    return (Ivec)_mm256_cvtph_ps(_mm_loadu_si128(in));
#else
    Halves h = *(const HalvesAt *)in;
    Ivec   bits;
    for (int i = 0; i < VEC; i++)
        bits[i] = (int32_t)f32_bits(f16_to_f32(h[i]));
    return bits;
#endif
}

/* As half.h: to nearest, halves to even; NaN is made quiet. */
ALWAYS Halves to_bf16(Vec v)
{
    Uvec bits = (Uvec)v;
    Uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    Vec  quiet = (Vec)(bits >> 16 | 0x40);
    return narrow_bits((Uvec)vec_if_equal(v, v, (Vec)rounded, quiet));
}

ALWAYS Halves to_f16(Vec v)
{
#if DQ_ISA_avx512
    return (Halves)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif DQ_ISA_avx2
    return (Halves)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    Halves h;
    for (int i = 0; i < VEC; i++)
        h[i] = f16_from_f32(v[i]);
    return h;
#endif
}

/* --- all of them; the last few through a buffer --- */

#define DEFINE_TO_F32(name, size)                                             \
    static bool name##_to_f32_all(float *out, const void *in, int64_t n)      \
    {                                                                         \
        const uint8_t *at = in;                                               \
        Ivec           top = {0};                                             \
        int64_t        i = 0;                                                 \
        for (; i + VEC <= n; i += VEC) {                                      \
            Ivec bits = open_##name(at + i * (size));                         \
            top = top_of(top, bits);                                          \
            ivec_store(out + i, bits);                                        \
        }                                                                     \
        if (i < n) {                                                          \
            uint8_t rest[VEC * (size)] = {0};                                 \
            memcpy(rest, at + i * (size), (size_t)((n - i) * (size)));        \
            Ivec bits = open_##name(rest);                                    \
            top = top_of(top, bits);                                          \
            memcpy(out + i, &bits, (size_t)(n - i) * sizeof *out);            \
        }                                                                     \
        return is_below_infinity(top);                                        \
    }
DEFINE_TO_F32(f32, 4)
DEFINE_TO_F32(f16, 2)
DEFINE_TO_F32(bf16, 2)

/* infinity: its bits as a half. */
#define DEFINE_FROM_F32(name, infinity)                                       \
    static bool name##_from_f32_all(void *out, const float *in, int64_t n)    \
    {                                                                         \
        uint8_t *at = out;                                                    \
        Halves   wrong = {0};                                                 \
        for (int64_t i = 0; i < n; i += VEC) {                                \
            int64_t some = n - i < VEC ? n - i : VEC;                         \
            Halves  h = to_##name(vec_load_some(in + i, some));               \
            wrong |= (Halves)((h & (infinity)) == (infinity));                \
            if (some == VEC)                                                  \
                *(HalvesAt *)(at + 2 * i) = h;                                \
            else                                                              \
                memcpy(at + 2 * i, &h, (size_t)(2 * some));                   \
        }                                                                     \
        bool good = true;                                                     \
        for (int i = 0; i < VEC; i++)                                         \
            good &= wrong[i] == 0;                                            \
        return good;                                                          \
    }
DEFINE_FROM_F32(f16, 0x7c00)
DEFINE_FROM_F32(bf16, 0x7f80)

static bool f32_from_f32(void *out, const float *in, int64_t n)
{
    Ivec    top = {0};
    int64_t i = 0;
    memcpy(out, in, (size_t)n * sizeof *in);
    for (; i + VEC <= n; i += VEC)
        top = top_of(top, ivec_load(in + i));
    if (i < n)
        top = top_of(top, (Ivec)vec_load_some(in + i, n - i));
    return is_below_infinity(top);
}

const HalvesIsa ISA_NAME(halves_) = {
    .to_f32 = {[DTYPE_F32] = f32_to_f32_all, [DTYPE_F16] = f16_to_f32_all,
               [DTYPE_BF16] = bf16_to_f32_all},
    .from_f32 = {[DTYPE_F32] = f32_from_f32, [DTYPE_F16] = f16_from_f32_all,
                 [DTYPE_BF16] = bf16_from_f32_all},
};
