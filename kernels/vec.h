/* vec.h - the widest float vector of the instruction set a file is compiled
 * for (isa.cmake): Vec of VEC floats, Ivec of as many int32_t. The compiler's
 * own + - * & | << >> work on both; here is what they lack. Only for *_isa.c.
 *
 * avx2 and avx512 give the same bits wherever sums run in 16 fixed lanes or one
 * chain an output; plain has no fused multiply-add and rounds once more. */
#ifndef DQ_VEC_H
#define DQ_VEC_H

#include <stdbool.h>
#include <stdint.h>

#define VEC_JOIN_(a, b) a##b
#define VEC_JOIN(a, b) VEC_JOIN_(a, b)
#define ISA_NAME(prefix) VEC_JOIN(prefix, DQ_ISA)  // ISA_NAME(attn_) = attn_avx2

#if DQ_ISA_avx512
#include <immintrin.h>
enum { VEC = 16 };
#elif DQ_ISA_avx2
#include <immintrin.h>
enum { VEC = 8 };
#else
enum { VEC = 4 };
#endif

typedef float   Vec  __attribute__((vector_size(4 * VEC)));
typedef int32_t Ivec __attribute__((vector_size(4 * VEC)));
typedef uint32_t Uvec __attribute__((vector_size(4 * VEC)));  // may wrap around
/* The same anywhere in memory. */
typedef float   VecAt  __attribute__((vector_size(4 * VEC), aligned(4), may_alias));
typedef int32_t IvecAt __attribute__((vector_size(4 * VEC), aligned(4), may_alias));
/* Half as many values, for sums in double. */
enum { DVEC = VEC / 2 };
typedef float  HalfAt __attribute__((vector_size(4 * DVEC), aligned(4), may_alias));
typedef double Dvec   __attribute__((vector_size(8 * DVEC)));
typedef double DvecAt __attribute__((vector_size(8 * DVEC), aligned(8), may_alias));

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS Vec vec_load(const float *p)
{
    return *(const VecAt *)p;
}

ALWAYS void vec_store(float *p, Vec v)
{
    *(VecAt *)p = v;
}

/* n of a vector's values, 0 < n <= VEC: a row's last ones. Lanes after them load as 0. */
ALWAYS Vec vec_load_some(const float *p, int64_t n)
{
#if DQ_ISA_avx512
    return (Vec)_mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (VEC - n)), p);
#else
    float part[VEC] = {0};
    if (n == VEC)
        return vec_load(p);
    for (int64_t i = 0; i < n; i++)
        part[i] = p[i];
    return vec_load(part);
#endif
}

ALWAYS void vec_store_some(float *p, Vec v, int64_t n)
{
#if DQ_ISA_avx512
    _mm512_mask_storeu_ps(p, (__mmask16)(0xffffu >> (VEC - n)), (__m512)v);
#else
    float part[VEC];
    if (n == VEC) {
        vec_store(p, v);
        return;
    }
    vec_store(part, v);
    for (int64_t i = 0; i < n; i++)
        p[i] = part[i];
#endif
}

ALWAYS Ivec ivec_load(const void *p)
{
    return *(const IvecAt *)p;
}

ALWAYS void ivec_store(void *p, Ivec v)
{
    *(IvecAt *)p = v;
}

ALWAYS Vec vec_all(float x)
{
    return x - (Vec){0};
}

ALWAYS Ivec ivec_all(int32_t x)
{
    return x - (Ivec){0};
}

/* DVEC floats at p as doubles, and back, rounded once. */
ALWAYS Dvec dvec_from(const float *p)
{
#if DQ_ISA_avx512
    return (Dvec)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif DQ_ISA_avx2
    return (Dvec)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    return __builtin_convertvector(*(const HalfAt *)p, Dvec);
#endif
}

ALWAYS void dvec_to(float *p, Dvec v)
{
    *(HalfAt *)p = __builtin_convertvector(v, HalfAt);
}

/* a * b + c, rounded once where the instruction set can. */
ALWAYS Vec vec_fma(Vec a, Vec b, Vec c)
{
#if DQ_ISA_avx512
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif DQ_ISA_avx2
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* x < y ? a : b, lane by lane; b where x or y is NaN. */
ALWAYS Vec vec_if_less(Vec x, Vec y, Vec a, Vec b)
{
#if DQ_ISA_avx512
    __mmask16 less = _mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_LT_OQ);
    return (Vec)_mm512_mask_blend_ps(less, (__m512)b, (__m512)a);
#elif DQ_ISA_avx2
    __m256 less = _mm256_cmp_ps((__m256)x, (__m256)y, _CMP_LT_OQ);
    return (Vec)_mm256_blendv_ps((__m256)b, (__m256)a, less);
#else
    Ivec less = x < y;
    return (Vec)((less & (Ivec)a) | (~less & (Ivec)b));
#endif
}

/* x == y ? a : b, lane by lane; b where x or y is NaN. */
ALWAYS Vec vec_if_equal(Vec x, Vec y, Vec a, Vec b)
{
#if DQ_ISA_avx512
    __mmask16 equal = _mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_EQ_OQ);
    return (Vec)_mm512_mask_blend_ps(equal, (__m512)b, (__m512)a);
#elif DQ_ISA_avx2
    __m256 equal = _mm256_cmp_ps((__m256)x, (__m256)y, _CMP_EQ_OQ);
    return (Vec)_mm256_blendv_ps((__m256)b, (__m256)a, equal);
#else
    Ivec equal = x == y;
    return (Vec)((equal & (Ivec)a) | (~equal & (Ivec)b));
#endif
}

/* The larger and the smaller; b where either is NaN. */
ALWAYS Vec vec_max(Vec a, Vec b)
{
#if DQ_ISA_avx512
    return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif DQ_ISA_avx2
    return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vec_if_less(b, a, a, b);
#endif
}

ALWAYS Vec vec_min(Vec a, Vec b)
{
#if DQ_ISA_avx512
    return (Vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif DQ_ISA_avx2
    return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vec_if_less(a, b, a, b);
#endif
}

ALWAYS Ivec ivec_max(Ivec a, Ivec b)
{
#if DQ_ISA_avx512
    return (Ivec)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif DQ_ISA_avx2
    return (Ivec)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    Ivec more = a > b;
    return (more & a) | (~more & b);
#endif
}

/* v, but x itself where x is NaN: bit tricks on v do not survive NaN. */
ALWAYS Vec vec_keep_nan(Vec x, Vec v)
{
#if DQ_ISA_avx512
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (Vec)_mm512_mask_blend_ps(nan, (__m512)v, (__m512)x);
#elif DQ_ISA_avx2
    __m256 nan = _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q);
    return (Vec)_mm256_blendv_ps((__m256)v, (__m256)x, nan);
#else
    Ivec nan = x != x;
    return (Vec)((nan & (Ivec)x) | (~nan & (Ivec)v));
#endif
}

/* The nearest whole number, half to even, of |v| < 2^22; larger ones stay as large. */
ALWAYS Vec vec_nearest(Vec v)
{
#if DQ_ISA_avx512
    return (Vec)_mm512_roundscale_ps((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif DQ_ISA_avx2
    return (Vec)_mm256_round_ps((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    return v + vec_all(0x1.8p23f) - vec_all(0x1.8p23f);  // no bits left for a fraction
#endif
}

ALWAYS Vec vec_sqrt(Vec v)
{
#if DQ_ISA_avx512
    return (Vec)_mm512_sqrt_ps((__m512)v);
#elif DQ_ISA_avx2
    return (Vec)_mm256_sqrt_ps((__m256)v);
#else
    for (int i = 0; i < VEC; i++)
        v[i] = __builtin_sqrtf(v[i]);
    return v;
#endif
}

ALWAYS Vec vec_abs(Vec v)
{
    return (Vec)((Ivec)v & 0x7fffffff);
}

/* The largest of a vector's values, none of them NaN. */
ALWAYS float vec_top(Vec v)
{
#if DQ_ISA_avx512
    return _mm512_reduce_max_ps((__m512)v);
#elif DQ_ISA_avx2
    __m128 half = _mm_max_ps(_mm256_castps256_ps128((__m256)v),
                             _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
    float top = v[0];
    for (int i = 1; i < VEC; i++)
        top = v[i] > top ? v[i] : top;
    return top;
#endif
}

ALWAYS int32_t ivec_top(Ivec v)
{
#if DQ_ISA_avx512
    return _mm512_reduce_max_epi32((__m512i)v);
#else
    int32_t top = v[0];
    for (int i = 1; i < VEC; i++)
        top = v[i] > top ? v[i] : top;
    return top;
#endif
}

/* Bit i is set where a[i] >= b[i]. */
ALWAYS uint32_t vec_at_least(Vec a, Vec b)
{
#if DQ_ISA_avx512
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
#elif DQ_ISA_avx2
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GE_OQ));
#else
    uint32_t bits = 0;
    for (int i = 0; i < VEC; i++)
        bits |= (uint32_t)(a[i] >= b[i]) << i;
    return bits;
#endif
}

/* The low bytes of v, in order. The compiler's own conversions go number by number. */
ALWAYS void ivec_store_bytes(void *p, Ivec v)
{
#if DQ_ISA_avx512
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8((__m512i)v));
#elif DQ_ISA_avx2
    __m256i four = _mm256_shuffle_epi8((__m256i)v, _mm256_set1_epi32(0x0c080400));
    _mm_storel_epi64(p, _mm_unpacklo_epi32(_mm256_castsi256_si128(four),
                                           _mm256_extracti128_si256(four, 1)));
#else
    for (int i = 0; i < VEC; i++)
        ((uint8_t *)p)[i] = (uint8_t)v[i];
#endif
}

/* VEC bytes, each a number of its own, with and without sign. */
ALWAYS Ivec ivec_load_bytes(const void *p)
{
#if DQ_ISA_avx512
    return (Ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128(p));
#elif DQ_ISA_avx2
    return (Ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
#else
    Ivec v;
    for (int i = 0; i < VEC; i++)
        v[i] = ((const int8_t *)p)[i];
    return v;
#endif
}

ALWAYS Ivec ivec_load_ubytes(const void *p)
{
    return ivec_load_bytes(p) & 255;
}

#endif
