/* cpu_vec_math.h - exp, erf and rounding to bf16 on the vectors of vec.h.
 * Only for *_isa.c. */
#ifndef DQ_CPU_VEC_MATH_H
#define DQ_CPU_VEC_MATH_H

#include "kernels/vec.h"

/* p * 2^n for whole n, |n| < 256: two steps, so that subnormal results and
 * those above 2^127 come out. shifted holds n in its lowest bits. */
ALWAYS Vec vec_scale(Vec p, Vec n, Vec shifted)
{
#if DQ_ISA_avx512
    (void)shifted;
    return (Vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    (void)n;
    Ivec whole = (Ivec)shifted - ivec_all(0x4b400000), half = whole >> 1;
    return p * (Vec)((half + 127) << 23) * (Vec)((whole - half + 127) << 23);
#endif
}

/* exp(r) - 1 = r + r^2 P(r) for |r| <= ln2 / 2, P minimax: 2^-28 of exp(r). */
ALWAYS Vec vec_exp_less_one(Vec r)
{
    Vec p = vec_all(0x1.6a23cep-10f);
    p = vec_fma(p, r, vec_all(0x1.123a20p-7f));
    p = vec_fma(p, r, vec_all(0x1.5558f2p-5f));
    p = vec_fma(p, r, vec_all(0x1.555492p-3f));
    p = vec_fma(p, r, vec_all(0x1.fffffcp-2f));
    return vec_fma(p, r * r, r);
}

/* exp(r) with x = n ln2 + r, |r| <= ln2 / 2. *shifted is n + 1.5 * 2^23, whose low bits
 * are n as an integer. */
ALWAYS Vec vec_exp_reduced(Vec x, Vec *n, Vec *shifted)
{
    const Vec shifter = vec_all(0x1.8p23f);  // adding it rounds to an integer
    *shifted = vec_fma(x, vec_all(0x1.715476p+0f), shifter);
    *n = *shifted - shifter;
    Vec r = vec_fma(*n, vec_all(-0x1.63p-1f), x);       // ln2, 9 bits: exact
    r = vec_fma(*n, vec_all(0x1.bd0106p-13f), r);       // and the rest
    return vec_exp_less_one(r) + vec_all(1);
}

/* exp(x) within 1 ulp for every x; NaN stays NaN. */
ALWAYS Vec vec_exp_full(Vec x)
{
    /* The second argument of min and max is what NaN passes through. */
    Vec clamped = vec_min(vec_all(89), vec_max(vec_all(-105), x));
    Vec n, shifted, p = vec_exp_reduced(clamped, &n, &shifted);
    return vec_scale(p, n, shifted);
}

/* x / (1 + exp(-x)); -inf gives NaN. */
ALWAYS Vec vec_silu(Vec x)
{
    return x / (vec_exp_full(-x) + vec_all(1));
}

/* Standard normal distribution function, 0.5 (1 + erf(x / sqrt 2)), within 1e-7;
 * 0 below -5.8. With z = |x| / sqrt 2: erf(z) = z + z P(z^2) up to z = 1, erfc(z)
 * = exp(-Q(z)) from there to 4.1, both minimax. */
ALWAYS Vec vec_normal_cdf(Vec x)
{
    const Vec one = vec_all(1), half = vec_all(0.5f);
    Vec size = (Vec)((Ivec)x & 0x7fffffff);
    Vec z = vec_min(size, vec_all(6)) * vec_all(0x1.6a09e6p-1f);
    Vec s = z * z;
    Vec p = vec_all(0x1.4ae4d0p-14f);
    p = vec_fma(p, s, vec_all(-0x1.a485ecp-11f));
    p = vec_fma(p, s, vec_all(0x1.5419f6p-8f));
    p = vec_fma(p, s, vec_all(-0x1.b7fbb4p-6f));
    p = vec_fma(p, s, vec_all(0x1.ce2d20p-4f));
    p = vec_fma(p, s, vec_all(-0x1.81273ep-2f));
    p = vec_fma(p, s, vec_all(0x1.06eba8p-3f));
    Vec near = half - half * vec_fma(p, z, z);  // erfc(z) / 2

    Vec q = vec_all(0x1.d12fc8p-17f);
    q = vec_fma(q, z, vec_all(-0x1.584e86p-12f));
    q = vec_fma(q, z, vec_all(0x1.cdd0a4p-9f));
    q = vec_fma(q, z, vec_all(-0x1.78b2b8p-6f));
    q = vec_fma(q, z, vec_all(0x1.aae990p-4f));
    q = vec_fma(q, z, vec_all(0x1.46902ap-1f));
    q = vec_fma(q, z, vec_all(0x1.207aacp+0f));
    q = vec_fma(q, z, vec_all(0x1.ee1bf6p-12f));
    Vec far = half * vec_exp_full(-q);
    far = vec_if_less(z, vec_all(4.1f), far, vec_all(0));

    Vec tail = vec_if_less(z, one, near, far);
    return vec_keep_nan(x, vec_if_less(x, vec_all(0), tail, one - tail));
}

#endif
