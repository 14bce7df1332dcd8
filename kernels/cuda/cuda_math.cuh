/* cuda_math.cuh - exp and the normal distribution of one value: cpu_vec_math.h step by step, so
 * the bits of CPUs with fused multiply-adds, and the same on every GPU, which approximations
 * in its units do not promise. */
#ifndef DQ_CUDA_MATH_CUH
#define DQ_CUDA_MATH_CUH

#include "kernels/cuda/cuda_backend.h"

/* exp(r) - 1 = r + r^2 P(r) for |r| <= ln2 / 2, P minimax: 2^-28 of exp(r). */
__device__ inline float math_exp_less_one(float r)
{
    float p = 0x1.6a23cep-10f;
    p = fmaf(p, r, 0x1.123a20p-7f);
    p = fmaf(p, r, 0x1.5558f2p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    return fmaf(p, r * r, r);
}

/* exp(x) within 1 ulp for every x; NaN stays NaN. */
__device__ inline float math_exp(float x)
{
    const float shifter = 0x1.8p23f;  // adding it rounds to an integer, in the lowest bits
    x = x < -105 ? -105 : x;
    x = x > 89 ? 89 : x;
    float shifted = fmaf(x, 0x1.715476p+0f, shifter), n = shifted - shifter;
    float r = fmaf(n, -0x1.63p-1f, x);       // ln2, 9 bits: exact
    r = fmaf(n, 0x1.bd0106p-13f, r);         // and the rest
    /* 2^n in two steps: subnormal results and those above 2^127 come out */
    int   whole = __float_as_int(shifted) - 0x4b400000, half = whole >> 1;
    float p = (math_exp_less_one(r) + 1) * __int_as_float((half + 127) << 23);
    return p * __int_as_float((whole - half + 127) << 23);
}

/* Standard normal distribution function, 0.5 (1 + erf(x / sqrt 2)), within 1e-7; 0 below -5.8.
 * With z = |x| / sqrt 2: erf(z) = z + z P(z^2) up to z = 1, erfc(z) = exp(-Q(z)) from there to
 * 4.1, both minimax. NaN gives any number. */
__device__ inline float math_normal_cdf(float x)
{
    float z = fminf(fabsf(x), 6) * 0x1.6a09e6p-1f, s = z * z, tail;
    if (z < 1) {
        float p = 0x1.4ae4d0p-14f;
        p = fmaf(p, s, -0x1.a485ecp-11f);
        p = fmaf(p, s, 0x1.5419f6p-8f);
        p = fmaf(p, s, -0x1.b7fbb4p-6f);
        p = fmaf(p, s, 0x1.ce2d20p-4f);
        p = fmaf(p, s, -0x1.81273ep-2f);
        p = fmaf(p, s, 0x1.06eba8p-3f);
        tail = 0.5f - 0.5f * fmaf(p, z, z);
    } else {
        float q = 0x1.d12fc8p-17f;
        q = fmaf(q, z, -0x1.584e86p-12f);
        q = fmaf(q, z, 0x1.cdd0a4p-9f);
        q = fmaf(q, z, -0x1.78b2b8p-6f);
        q = fmaf(q, z, 0x1.aae990p-4f);
        q = fmaf(q, z, 0x1.46902ap-1f);
        q = fmaf(q, z, 0x1.207aacp+0f);
        q = fmaf(q, z, 0x1.ee1bf6p-12f);
        tail = z < 4.1f ? 0.5f * math_exp(-q) : 0;
    }
    return x < 0 ? tail : 1 - tail;
}

#endif
