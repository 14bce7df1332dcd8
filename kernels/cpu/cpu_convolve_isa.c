/* cpu_convolve_isa.c - one row of a causal convolution of each channel, then SiLU.
 * y[e] = silu(b[e] + sum_j w[j,e] x_j[e]), x_j the row that tap j looks at
 * shapes   any n, n_taps
 * cost     an exp and n_taps multiply-adds an item; the taps' rows come from a near cache
 * sums     one chain a channel, over taps in order; rows before the sequence are added like
 *          any other, so that zeros and a state of zeros give the same bits
 * NaN      makes n_taps rows of its channel NaN
 * test     tests/kernels/test_convolve.c, every instruction set */
#include "kernels/cpu/cpu_ssm.h"
#include "kernels/cpu/cpu_vec_math.h"

void ISA_NAME(convolve_)(float *y, const ConvolveRow *c, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC) {
        int64_t      some = n - i < VEC ? n - i : VEC;
        const float *w = c->w + i, *old = c->old + i, *x = c->x + i;
        Vec          sum = vec_load_some(c->b + i, some);
        for (int64_t j = 0; j < c->n_old; j++, w += c->stride, old += c->old_stride)
            sum = vec_fma(vec_load_some(w, some), vec_load_some(old, some), sum);
        for (int64_t j = c->n_old; j < c->n_taps; j++, w += c->stride, x += c->stride)
            sum = vec_fma(vec_load_some(w, some), vec_load_some(x, some), sum);
        vec_store_some(y + i, vec_silu(sum), some);
    }
}
