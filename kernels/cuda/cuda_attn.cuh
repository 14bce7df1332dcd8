/* cuda_attn.cuh - what the kernels of attention share: where rows lie, which keys a query
 * sees, fake quantization, weights, and how the maps of a head are summed up. */
#ifndef DQ_CUDA_ATTN_CUH
#define DQ_CUDA_ATTN_CUH

#include <math_constants.h>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_math.cuh"

/* --- places --- */

/* Query `query` of all, row r of a block: its number among rows of q, and of [T,B,R]. */
__device__ inline int64_t attn_row(const AttnCall &c, int32_t query, int32_t block, int32_t r)
{
    return ((int64_t)query * c.n_blocks + block) * c.n_rows + r;
}

/* Row r of a block is its noise map, 1, or a signal, 0. */
__device__ inline int32_t attn_map(const AttnCall &c, int32_t r)
{
    return r == c.n_signals;
}

/* The head whose records row r of a block goes to: the noise to the first. */
__device__ inline int32_t attn_head(const AttnCall &c, int32_t block, int32_t r)
{
    return block * c.n_signals + (attn_map(c, r) ? 0 : r);
}

__device__ inline int32_t attn_group(const AttnCall &c, int32_t block)
{
    return block / (c.n_blocks / c.n_groups);
}

/* The key that map `map` of a group looks at first in a sequence; the next is attn_k_step
 * floats on. */
__device__ inline const float *attn_k(const AttnCall &c, int32_t sequence, int32_t group,
                                      int32_t map)
{
    int64_t row = (int64_t)c.key_start[sequence] * c.n_groups + group;
    return c.k + (row * c.n_key_maps + (c.n_key_maps == 2 ? map : 0)) * c.d;
}

__device__ inline int64_t attn_k_step(const AttnCall &c)
{
    return (int64_t)c.n_groups * c.n_key_maps * c.d;
}

__device__ inline const float *attn_v(const AttnCall &c, int32_t sequence, int32_t group)
{
    return c.v + ((int64_t)c.key_start[sequence] * c.n_groups + group) * c.dv;
}

__device__ inline int64_t attn_v_step(const AttnCall &c)
{
    return (int64_t)c.n_groups * c.dv;
}

/* Rows of so many floats from p on begin where a vector of n of them may lie. */
static inline bool attn_is_wide(const float *p, int64_t row, int n)
{
    return (uintptr_t)p % (n * sizeof *p) == 0 && row % n == 0;
}

/* Keys from .. end of its sequence, never none, are what a query sees. */
typedef struct {
    int32_t from, end;
} AttnSeen;

__device__ inline AttnSeen attn_seen(const AttnCall &c, int32_t position)
{
    AttnSeen s = {max(position + 1 - c.reach, 0), position + 1};
    return s;
}

/* --- numbers --- */

/* x -> scale * round(x / scale), |codes| <= limit, half to even; the CPU's bits. Scale 0 gives
 * zeros, NaN or infinity NaN. */
__device__ inline float attn_quantized(float x, float scale, float limit)
{
    const float shifter = 0x1.8p23f;  // leaves no bits for a fraction
    float code = x;
    if (scale != 0) {
        code = __fdiv_rn(x, scale);
        code = code < -limit ? -limit : code > limit ? limit : code;  // NaN passes
        code = __fsub_rn(__fadd_rn(code, shifter), shifter);
    }
    return __fmul_rn(code, scale);
}

/* A top of -inf (nothing but masked or -inf so far) must not be subtracted. */
__device__ inline float attn_safe_top(float top)
{
    return top == -CUDART_INF_F ? 0 : top;
}

/* exp(x) for x <= 88, within 1 ulp, the CPU's bits; 0 below -87.3, NaN stays NaN. */
__device__ inline float attn_exp(float x)
{
    const float shifter = 0x1.8p23f;  // adding it rounds to an integer, in the lowest bits
    float shifted = fmaf(x, 0x1.715476p+0f, shifter), n = shifted - shifter;
    float r = fmaf(n, -0x1.63p-1f, x);       // ln2, 9 bits: exact
    r = fmaf(n, 0x1.bd0106p-13f, r);         // and the rest
    uint32_t p = __float_as_uint(math_exp_less_one(r) + 1);
    float    y = __uint_as_float(p + (__float_as_uint(shifted) << 23));  // times 2^n
    return x < -87.3f ? 0 : isnan(x) ? x : y;
}

/* What older sums of a row must be multiplied by when its top rises. */
__device__ inline float attn_keep(float before, float top)
{
    return before == top ? 1 : attn_exp(before - attn_safe_top(top));
}

/* 0 where there is one map. */
__device__ inline double attn_lambda(const AttnCall &c, int32_t query, int32_t head)
{
    if (c.n_maps == 1)
        return 0;
    return c.lambda_rows ? (double)c.lambda_rows[(int64_t)query * c.n_heads + head]
                         : (double)c.lambda;
}

/* A1 v - lambda A2 v of one column from the maps' sums of exp(x - top) v; w0 = 1 / sum of the
 * signal's exp, w1 = lambda / sum of the noise's. Not fused: equal maps cancel to 0. */
__device__ inline float attn_difference(float signal, float w0, float noise, float w1)
{
    return __fsub_rn(__fmul_rn(signal, w0), __fmul_rn(noise, w1));
}

/* A head's row from the sum of its squares: what its values are divided by. */
__device__ inline float attn_rms(const AttnCall &c, float squares)
{
    return sqrtf(squares / (float)c.dv + c.norm_eps);
}

__device__ inline float attn_normed(const AttnCall &c, float v, float rms, int32_t column)
{
    v *= 1 / rms;
    if (c.norm_weight)
        v *= c.norm_weight[column];
    return v * c.out_scale;
}

#endif
