/* cpu_divergence_isa.c - two rows of logits in pieces: log sum exp of both, and the sum
 * that KL needs. With e_v = exp(b_v - top_b),
 *   KL(p_b || p_a) = sum_v e_v (b_v - a_v) / sum_v e_v + log sum exp a - log sum exp b
 * sums    double, exp too (2^-47): KL is a small difference of large numbers, and its
 *         quantiles near 0 would drown in f32. 16 lanes a piece
 * best    where the largest value first stands; NaN is passed over
 * -inf    e_v = 0 adds nothing, whatever a_v; a_v = -inf with e_v > 0 makes KL +inf
 * NaN     in any piece makes a sum NaN; so does +inf
 * test    tests/kernels/test_divergence_op.c */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_row_top.h"

enum { PAIRS = LANES / DVEC };

typedef uint64_t Dbits __attribute__((vector_size(8 * DVEC)));  // may wrap around

ALWAYS Dvec dvec_all(double x)
{
    return x - (Dvec){0};
}

ALWAYS Dvec dvec_fma(Dvec a, Dvec b, Dvec c)
{
#if DQ_ISA_avx512
    return (Dvec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif DQ_ISA_avx2
    return (Dvec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

/* exp(x) for x <= 0 and NaN; 0 below -708, where results would be subnormal. x = n ln2 + r,
 * |r| <= ln2 / 2, the series of exp(r) up to r^11: the next term is 2^-47. */
ALWAYS Dvec dvec_exp(Dvec x)
{
    const Dvec shifter = dvec_all(0x1.8p52);  // adding it rounds to an integer
    Dbits some = ~(Dbits)(x < dvec_all(-708));
    x = (Dvec)((Dbits)x & some);
    Dvec shifted = dvec_fma(x, dvec_all(0x1.71547652b82fep+0), shifter);
    Dvec n = shifted - shifter;
    Dvec r = dvec_fma(n, dvec_all(-0x1.62e42fefap-1), x);  // ln2, 36 bits: exact
    r = dvec_fma(n, dvec_all(-0x1.cf79abc9e3b3ap-40), r);  // and the rest
    Dvec p = dvec_all(1.0 / 39916800);
    p = dvec_fma(p, r, dvec_all(1.0 / 3628800));
    p = dvec_fma(p, r, dvec_all(1.0 / 362880));
    p = dvec_fma(p, r, dvec_all(1.0 / 40320));
    p = dvec_fma(p, r, dvec_all(1.0 / 5040));
    p = dvec_fma(p, r, dvec_all(1.0 / 720));
    p = dvec_fma(p, r, dvec_all(1.0 / 120));
    p = dvec_fma(p, r, dvec_all(1.0 / 24));
    p = dvec_fma(p, r, dvec_all(1.0 / 6));
    p = dvec_fma(p, r, dvec_all(0.5));
    p = dvec_fma(p, r, dvec_all(1));
    p = dvec_fma(p, r, dvec_all(1));
    Dvec power = (Dvec)(((Dbits)shifted << 52) + (Dbits)dvec_all(1));
    return (Dvec)((Dbits)(p * power) & some);
}

ALWAYS double add_lanes(const Dvec v[PAIRS])
{
    double lane[LANES];
    memcpy(lane, v, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* Adds n logits of both; the row's tops are theirs already. */
static void add_sums(DivergenceRow *row, const float *model, const float *reference,
                     int64_t n)
{
    const Dvec top_a = dvec_all((double)safe_top(row->top[0]));
    const Dvec top_b = dvec_all((double)safe_top(row->top[1]));
    Dvec sum_a[PAIRS] = {{0}}, sum_b[PAIRS] = {{0}}, cross[PAIRS] = {{0}};
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < PAIRS; j++) {
            Dvec a = dvec_from(model + i + j * DVEC);
            Dvec b = dvec_from(reference + i + j * DVEC);
            Dvec e = dvec_exp(b - top_b);
            sum_a[j] += dvec_exp(a - top_a);
            sum_b[j] += e;
            /* 0 * inf is not 0. */
            cross[j] += (Dvec)((Dbits)(e * (b - a)) & (Dbits)(e != 0));
        }
    row->sum[0] += add_lanes(sum_a);
    row->sum[1] += add_lanes(sum_b);
    row->cross += add_lanes(cross);
}

/* A sum so far to the scale of a new top. Nothing came before -inf, and a sum of +inf
 * whose words have become impossible goes with them. */
static double rescale(double sum, float old, float new)
{
    double scale = old == -INFINITY ? 0 : exp((double)old - (double)new);
    return scale == 0 && !isnan(sum) ? 0 : sum * scale;
}

static void fold(DivergenceRow *row, const float *model, const float *reference, int64_t n,
                 int64_t first)
{
    const float *x[2] = {model, reference};
    for (int i = 0; i < 2; i++) {
        float top = row_largest(x[i], n);
        if (!(top > row->top[i]))
            continue;
        row->sum[i] = rescale(row->sum[i], row->top[i], top);
        if (i == 1)
            row->cross = rescale(row->cross, row->top[1], top);
        row->top[i] = top;
        row->best[i] = (int32_t)(first + row_first(x[i], top));
    }
    add_sums(row, model, reference, n);
}

static void merge(DivergenceRow *row, const DivergenceRow *next)
{
    for (int i = 0; i < 2; i++) {
        float old = row->top[i], other = next->top[i];
        float top = fmaxf(old, other), to = safe_top(top);
        if (other > old)
            row->best[i] = next->best[i];
        row->sum[i] = rescale(row->sum[i], old, to) + rescale(next->sum[i], other, to);
        if (i == 1)
            row->cross = rescale(row->cross, old, to) + rescale(next->cross, other, to);
        row->top[i] = top;
    }
}

const DivergenceIsa ISA_NAME(divergence_) = {fold, merge};
