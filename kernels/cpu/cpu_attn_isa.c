/* cpu_attn_isa.c - the arithmetic of attention tiles, once an instruction set.
 * product   C = A B in blocks of registers, both for q k^T and for weights v
 * softmax   one pass a row: maximum, exp, sum
 * shapes    widths padded to 16 floats; any number of rows, any depth
 * cost      product: 24 fused multiply-adds for 10 loads (avx512)
 * sums      a product is one chain over depth an output; others 16 lanes
 * NaN       stays NaN everywhere
 * test      tests/kernels/test_attention.c, each instruction set */
#include "kernels/cpu/cpu_attention.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_vec_math.h"
#include "kernels/cpu/cpu_vec_round.h"
#include "kernels/half.h"

/* Registers: MR x NV sums, NV of b, one of a; 32 with avx512, else 16. */
#if DQ_ISA_avx512
enum { MR_MAX = 6, NV_MAX = 4 };
#elif DQ_ISA_avx2
enum { MR_MAX = 6, NV_MAX = 2 };
#else
enum { MR_MAX = 4, NV_MAX = 2 };
#endif
enum { LANES = 16, LANE_VECS = LANES / VEC };

/* --- product --- */

/* MR and NV are constants where this is inlined: the loops over them unroll and
 * sum[][] lives in registers. */
ALWAYS void block(int MR, int NV, const Product *product, int64_t depth, const float *keep,
                  float scale)
{
    const Product copy = *product, *p = &copy;  // stores to c cannot change it
    Vec sum[MR_MAX][NV_MAX];
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            sum[i][j] = keep ? vec_load(p->c + i * p->ldc + j * VEC) * vec_all(keep[i])
                             : vec_all(0);
    const float *b = p->b;
    for (int64_t k = 0; k < depth; k++, b += p->ldb) {
        Vec right[NV_MAX];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            right[j] = vec_load(b + j * VEC);
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++) {
            Vec left = vec_all(p->a[i * p->lda + k]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++)
                sum[i][j] = vec_fma(left, right[j], sum[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            vec_store(p->c + i * p->ldc + j * VEC,
                      keep ? sum[i][j] : sum[i][j] * vec_all(scale));
}

#define BLOCK(MR, NV)                                                              \
    static void block_##MR##_##NV(const Product *p, int64_t depth, const float *k, \
                                  float scale)                                     \
    {                                                                              \
        if (k)                                                                     \
            block(MR, NV, p, depth, k, scale);                                     \
        else                                                                       \
            block(MR, NV, p, depth, NULL, scale);                                  \
    }
#if DQ_ISA_avx512
#define BLOCKS(MR) BLOCK(MR, 1) BLOCK(MR, 2) BLOCK(MR, 3) BLOCK(MR, 4)
#define ROW(MR) {block_##MR##_1, block_##MR##_2, block_##MR##_3, block_##MR##_4}
#else
#define BLOCKS(MR) BLOCK(MR, 1) BLOCK(MR, 2)
#define ROW(MR) {block_##MR##_1, block_##MR##_2}
#endif
BLOCKS(1) BLOCKS(2) BLOCKS(3) BLOCKS(4)
#if DQ_ISA_avx512 || DQ_ISA_avx2
BLOCKS(5) BLOCKS(6)
#endif

typedef void (*BlockFn)(const Product *, int64_t, const float *, float);

static const BlockFn BLOCK_OF[MR_MAX][NV_MAX] = {
    ROW(1), ROW(2), ROW(3), ROW(4),
#if DQ_ISA_avx512 || DQ_ISA_avx2
    ROW(5), ROW(6),
#endif
};

static void product(const Product *p, int64_t rows, int64_t cols, int64_t depth,
                    const float *keep, float scale)
{
    int64_t vecs = cols / VEC;
    for (int64_t j = 0, nv; j < vecs; j += nv) {
        nv = vecs - j < NV_MAX ? vecs - j : NV_MAX;
        for (int64_t i = 0, mr; i < rows; i += mr) {
            mr = rows - i < MR_MAX ? rows - i : MR_MAX;
            Product part = *p;
            part.c += i * p->ldc + j * VEC;
            part.a += i * p->lda;
            part.b += j * VEC;
            BLOCK_OF[mr - 1][nv - 1](&part, depth, keep ? keep + i : NULL, scale);
        }
    }
}

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

/* The 16 lanes of v[LANE_VECS], in one order for all instruction sets. */
ALWAYS float sum_lanes(const Vec *v)
{
    float lane[LANES];
    memcpy(lane, v, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static int64_t padded(int64_t n)
{
    return (n + PAD - 1) / PAD * PAD;
}

ALWAYS float largest(const float *x, int64_t n)
{
    Vec top = vec_all(-INFINITY);
    float lane[VEC], max = -INFINITY;
    for (int64_t i = 0; i < n; i += VEC)
        top = vec_max(vec_load(x + i), top);  // NaN in x is passed over
    memcpy(lane, &top, sizeof top);
    for (int i = 0; i < VEC; i++)
        max = lane[i] > max ? lane[i] : max;
    return max;
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

static float softmax(float *x, int64_t n, SoftmaxRow *row, bool bf16)
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

const AttnIsa ISA_NAME(attn_) = {product, softmax, weights, absmax, quantize, finish};
