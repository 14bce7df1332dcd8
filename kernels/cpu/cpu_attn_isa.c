/* cpu_attn_isa.c - the arithmetic of attention tiles, once an instruction set.
 * product   C = A B in tiles (cpu_tile.h), both for q k^T and for weights v; dots the same of
 *           pairs of bf16, half of one half of such
 * softmax   one pass a row: maximum, exp, sum
 * shapes    widths padded to 16 floats; any number of rows, any depth
 * sums      a product is one chain over depth an output; others 16 lanes
 * NaN       stays NaN everywhere
 * test      tests/kernels/test_attention.c, each instruction set */
#include "kernels/cpu/cpu_attention.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_tile.h"
#include "kernels/cpu/cpu_vec_math.h"
#include "kernels/cpu/cpu_vec_round.h"
#include "kernels/half.h"

enum { LANES = 16, LANE_VECS = LANES / VEC };

/* --- product --- */

static void product(const Product *p, int64_t rows, int64_t cols, int64_t depth,
                    const float *keep, float scale)
{
    tiles(*p, rows, cols, depth, keep, scale, step_f32);
}

#if DQ_ISA_avx512
DOTS static void dots(const Product *p, int64_t rows, int64_t cols, int64_t depth,
                      const float *keep, float scale)
{
    tiles(*p, rows, cols, depth, keep, scale, step_bf16);
}

/* What the other half of b holds is not looked at: 0 times infinity is NaN. */
DOTS static void half_dots(const Product *p, int64_t rows, int64_t cols, const float *keep,
                           Word mask)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += VEC) {
            float *c = p->c + i * p->ldc + j;
            Vec    b = (Vec)(ivec_load(p->b + j) & (int32_t)mask);
            vec_store(c, step_bf16(vec_load(c) * vec_all(keep[i]), p->a[i * p->lda] & mask, b));
        }
}
#else
#define dots NULL
#define half_dots NULL
#endif

/* --- exp and softmax --- */

/* exp(x) for x <= 88, within 1 ulp; 0 below -87.3, where results would soon be
 * subnormal: slow, and nothing beside a sum of at least 1. */
ALWAYS Vec vec_exp(Vec x)
{
    Vec n, shifted, p = vec_exp_reduced(x, &n, &shifted);
    Vec y = (Vec)((Uvec)p + ((Uvec)shifted << 23));     // times 2^n
    y = vec_if_less(x, vec_all(-87.3f), vec_all(0), y);
    return vec_keep_nan(x, y);
}

ALWAYS Vec vec_bf16(Vec x)
{
    Uvec u = (Uvec)x;
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    return vec_keep_nan(x, (Vec)u);
}

/* The high halves of v. */
ALWAYS void vec_store_halves(uint16_t *to, Vec v)
{
#if DQ_ISA_avx512
    _mm256_storeu_si256((__m256i_u *)to, _mm512_cvtepi32_epi16((__m512i)((Uvec)v >> 16)));
#else
    for (int i = 0; i < VEC; i++)
        to[i] = (uint16_t)((Uvec)v >> 16)[i];
#endif
}

/* The 16 lanes of v[LANE_VECS]: halves onto each other, in one order for all instruction sets. */
ALWAYS float sum_lanes(const Vec *v)
{
#if DQ_ISA_avx512 || DQ_ISA_avx2
#if DQ_ISA_avx512
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256((__m512)v[0]),
                                 _mm512_extractf32x8_ps((__m512)v[0], 1));
#else
    __m256 eight = (__m256)(v[0] + v[1]);
#endif
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    Vec four = (v[0] + v[2]) + (v[1] + v[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
#endif
}

static int64_t padded(int64_t n)
{
    return (n + PAD - 1) / PAD * PAD;
}

ALWAYS float largest(const float *x, int64_t n)
{
    Vec top = vec_all(-INFINITY);
    for (int64_t i = 0; i < n; i += VEC)
        top = vec_max(vec_load(x + i), top);  // NaN in x is passed over
    return vec_top(top);
}

ALWAYS float one_exp(float x)
{
    Vec v = vec_exp(vec_all(x));
    return v[0];
}

/* A top of -inf (nothing but masked or -inf so far) must not be subtracted. */
ALWAYS float safe_top(float top)
{
    return top == -INFINITY ? 0 : top;
}

static float softmax(float *x, int64_t n, SoftmaxRow *row, bool bf16, uint16_t *halves)
{
    int64_t end = padded(n);
    for (int64_t i = n; i < end; i++)
        x[i] = -INFINITY;
    float before = row->top, top = largest(x, end);
    if (top > before)
        row->top = top;
    top = safe_top(row->top);
    Vec sum[LANE_VECS] = {{0}};
    for (int64_t i = 0; i < end; i += LANES)
        for (int j = 0; j < LANE_VECS; j++) {
            Vec p = vec_exp(vec_load(x + i + j * VEC) - vec_all(top));
            sum[j] += p;
            if (halves)   // behind what is still to be read of x
                vec_store_halves(halves + i + j * VEC, vec_bf16(p));
            else
                vec_store(x + i + j * VEC, bf16 ? vec_bf16(p) : p);
        }
    float keep = before == row->top ? 1 : one_exp(before - top);
    row->sum = row->sum * (double)keep + (double)sum_lanes(sum);
    return keep;
}

static void weights(float *p, const float *x, int64_t n, float top)
{
    Vec safe = vec_all(safe_top(top));
    for (int64_t i = 0; i < n; i += VEC)
        vec_store(p + i, vec_exp(vec_load(x + i) - safe));
}

/* --- fake quantization --- */

static uint32_t absmax(const float *x, int64_t n)
{
    return absmax_bits(x, n);
}

static void quantize(float *x, int64_t n, float scale, float limit)
{
    for (int64_t i = 0; i < n; i += VEC)
        vec_store(x + i, round_to_scale(vec_load(x + i), scale, -limit, limit));
}

/* --- the end of a row --- */

static void finish(float *out, float *o, int64_t ldo, const HeadFinish *f)
{
    int64_t width = padded(f->dv);
    Vec square[LANE_VECS] = {{0}};
    for (int64_t i = 0; i < width; i += LANES)
        for (int j = 0; j < LANE_VECS; j++) {
            float *at = o + i + j * VEC;
            Vec v = vec_load(at) * vec_all(f->weight[0]);
            if (f->n_maps == 2)
                v -= vec_load(at + ldo) * vec_all(f->weight[1]);
            square[j] += v * v;
            vec_store(at, v);
        }
    if (f->norm_eps >= 0) {
        float rms = sqrtf(sum_lanes(square) / (float)f->dv + f->norm_eps);
        for (int64_t i = 0; i < width; i += VEC) {
            Vec v = vec_load(o + i) / vec_all(rms);
            if (f->norm_weight)
                v *= vec_load(f->norm_weight + i);
            vec_store(o + i, v * vec_all(f->out_scale));
        }
    }
    memcpy(out, o, (size_t)f->dv * sizeof *out);
}

const AttnIsa ISA_NAME(attn_) = {product, dots, half_dots, softmax,
                                  weights, absmax, quantize, finish};
