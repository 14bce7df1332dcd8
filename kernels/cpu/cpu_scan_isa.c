/* cpu_scan_isa.c - Mamba-1's selective scan along one sequence, channels side by side.
 *   delta = softplus(dt + dt_bias)
 *   h_n = exp(delta A_n) h_n + delta B_n u,   y = D u + sum_n C_n h_n
 * shapes   SCAN_CHANNELS channels or fewer; any N, T. Vectors hold channels, so nothing is
 *          summed across lanes and a ragged width is only a last part of a vector
 * cost     TEN exp, some 30 flops with each; A and h of a block stay in the nearest cache
 * h        is two floats, its value and what that lost to rounding. One float is not enough:
 *          a slow state (delta A = -0.001) lives for a thousand steps, each rounds h anew, and
 *          a steady input stops counting once its share is below half an ulp of h. The pair
 *          adds a step's change (exp(delta A) - 1) h + delta B u, which needs no more than
 *          float, to h exactly: 6 additions in place of 1, where double would halve the
 *          vectors of everything else
 * exp      from delta * A before rounding, where there is a fused multiply-add; exp - 1 comes
 *          without cancellation while |delta A| < ln2 / 2, beyond that h is multiplied
 * sums     over n in order, one chain a channel
 * NaN      in u, dt or B: the channel's h and y from there on; in C: the row of y. An
 *          infinite h becomes NaN a step later
 * test     tests/kernels/test_scan.c, every instruction set */
#include "kernels/cpu/cpu_ssm.h"
#include "kernels/cpu/cpu_vec_math.h"

typedef struct {
    Vec sum, lost;   // a + b, and what rounding took from it: sum + lost is exact
} TwoFloats;

ALWAYS TwoFloats two_sum(Vec a, Vec b)
{
    Vec sum = a + b, of_b = sum - a;
    return (TwoFloats){sum, (a - (sum - of_b)) + (b - of_b)};
}

ALWAYS Vec magnitude(Vec x)
{
    return (Vec)((Ivec)x & 0x7fffffff);
}

/* log(1 + exp(v)), v = a + b with the bits that the sum loses: for v = -10 they are 2^-20 of
 * the result. max(v, 0) + log1p(z), z = exp(-|v|); log1p(z) = 2 atanh(z / (2 + z)), in
 * t = 2 z / (2 + z), minimax to 2^-27. */
ALWAYS Vec softplus_of_sum(Vec a, Vec b)
{
    TwoFloats v = two_sum(a, b);
    Vec size = magnitude(v.sum);
    /* lost is NaN beside an infinity; toward is how much |v| is short of */
    Vec lost = vec_if_less(magnitude(v.lost), vec_all(1), v.lost, vec_all(0));
    Vec toward = (Vec)((Ivec)lost ^ ((Ivec)v.sum & INT32_MIN));
    Vec z = vec_exp_full(-size);
    z = vec_fma(-toward, z, z);
    Vec t = (z + z) / (z + vec_all(2)), w = t * t;
    Vec q = vec_all(0x1.1ef870p-11f);
    q = vec_fma(q, w, vec_all(0x1.1eb612p-9f));
    q = vec_fma(q, w, vec_all(0x1.99d27cp-7f));
    q = vec_fma(q, w, vec_all(0x1.555500p-4f));
    return vec_max(vec_all(0), v.sum) + vec_fma(t * w, q, t);
}

/* exp(delta a) h + input; h is the pair at h, lost. Below exp(-87) nothing of h stays. */
ALWAYS Vec next_state(float *h, float *lost, Vec delta, Vec a, Vec input)
{
    const Vec shifter = vec_all(0x1.8p23f), zero = vec_all(0);
    Vec old = vec_load(h), x = vec_min(vec_all(89), delta * a);
    Vec shifted = vec_fma(x, vec_all(0x1.715476p+0f), shifter), n = shifted - shifter;
    Vec r = vec_fma(delta, a, n * vec_all(-0x1.63p-1f));  // as in vec_exp_reduced
    r = vec_fma(n, vec_all(0x1.bd0106p-13f), r);
    Vec less_one = vec_exp_less_one(r);
    Vec power = vec_scale(less_one + vec_all(1), n, shifted);
    Vec factor = vec_if_equal(n, zero, less_one, power);
    factor = vec_if_less(x, vec_all(-87), zero, factor);
    Vec kept = vec_if_equal(n, zero, old, zero);
    Vec rest = vec_if_equal(n, zero, vec_load(lost), zero);
    TwoFloats next = two_sum(kept, vec_fma(factor, old, input) + rest);
    vec_store(h, next.sum);
    vec_store(lost, next.lost);
    return next.sum;
}

void ISA_NAME(scan_)(const ScanBlock *s)
{
    int64_t N = s->n_states, E = s->stride;
    for (int64_t t = 0; t < s->rows; t++) {
        const float *b = s->bc + t * 2 * N, *c = b + N;
        for (int64_t i = 0; i < s->channels; i += VEC) {
            int64_t some = s->channels - i < VEC ? s->channels - i : VEC;
            Vec u = vec_load_some(s->u + t * E + i, some);
            Vec delta = softplus_of_sum(vec_load_some(s->dt + t * E + i, some),
                                        vec_load(s->dt_bias + i));
            Vec input = delta * u, sum = vec_load(s->d + i) * u;
            for (int64_t n = 0; n < N; n++) {
                int64_t at = n * SCAN_CHANNELS + i;
                Vec h = next_state(s->h + at, s->lost + at, delta, vec_load(s->a + at),
                                   input * vec_all(b[n]));
                sum = vec_fma(vec_all(c[n]), h, sum);
            }
            vec_store_some(s->y + t * E + i, sum, some);
        }
    }
}
