/* cpu_rows_isa.c - the small operations on one row of n values.
 * round_bf16 y = x to nearest even, NaN stays NaN; pair_bf16 y = two of them
 * rope       the halves of one head turn by cs, sn [half]
 * add        y += x
 * glu        gate = act(gate) * up, or act(gate); exp, erf within 1e-7 (cpu_vec_math.h)
 * shapes     any n >= 0; in place where input and output are one argument
 * NaN        stays in its place
 * test       tests/kernels/test_{op_rope,glu,linear}.c, every instruction set */
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_vec_math.h"
#include "kernels/half.h"

/* bf16_from_f32 without its branch, for the compiler to vectorize. */
ALWAYS uint32_t bf16_high(uint32_t u)
{
    uint32_t rounded = u + 0x7fff + ((u >> 16) & 1), quiet = u | 0x400000;
    return (u & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
}

static void round_bf16(uint16_t *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint16_t)(bf16_high(f32_bits(x[i])) >> 16);
}

static void round_to_bf16(float *y, const float *x, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = f32_from_bits(bf16_high(f32_bits(x[i])) & 0xffff0000u);
}

static void pair_bf16(uint32_t *y, const float *low, const float *high, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = bf16_high(f32_bits(low[i])) >> 16 |
               (bf16_high(f32_bits(high[i])) & 0xffff0000u);
}

static void rope(float *x, int64_t half, const float *cs, const float *sn)
{
    int64_t i = 0;
    for (; i + VEC <= half; i += VEC) {
        Vec a = vec_load(x + i), b = vec_load(x + half + i);
        Vec c = vec_load(cs + i), s = vec_load(sn + i);
        vec_store(x + i, a * c - b * s);
        vec_store(x + half + i, b * c + a * s);
    }
    for (; i < half; i++) {
        float a = x[i], b = x[half + i];
        x[i] = a * cs[i] - b * sn[i];
        x[half + i] = b * cs[i] + a * sn[i];
    }
}

static void add(float *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, vec_load(y + i) + vec_load(x + i));
    for (; i < n; i++)
        y[i] += x[i];
}

/* --- glu --- */

ALWAYS Vec gelu(Vec x)
{
    return x * vec_normal_cdf(x);
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3) */
ALWAYS Vec gelu_tanh(Vec x)
{
    Vec cubic = vec_fma(x * x * x, vec_all(0.044715f), x);
    return x / (vec_exp_full(cubic * vec_all(-1.5957691216057308f)) + vec_all(1));
}

ALWAYS Vec relu(Vec x)
{
    return vec_keep_nan(x, vec_max(x, vec_all(0)));
}

#define GLU(name, act)                                                        \
    static void glu_##name(float *gate, const float *up, int64_t n)           \
    {                                                                         \
        for (int64_t i = 0; i < n; i += VEC) {                                \
            int64_t some = n - i < VEC ? n - i : VEC;                         \
            Vec     v = act(vec_load_some(gate + i, some));                   \
            if (up)                                                           \
                v *= vec_load_some(up + i, some);                             \
            vec_store_some(gate + i, v, some);                                \
        }                                                                     \
    }

GLU(silu, vec_silu)
GLU(gelu, gelu)
GLU(gelu_tanh, gelu_tanh)
GLU(relu, relu)

const RowsIsa ISA_NAME(rows_) = {
    round_bf16, round_to_bf16, pair_bf16, rope, add,
    {[ACT_SILU] = glu_silu, [ACT_GELU] = glu_gelu, [ACT_GELU_TANH] = glu_gelu_tanh,
     [ACT_RELU] = glu_relu},
};
