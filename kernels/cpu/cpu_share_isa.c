/* cpu_share_isa.c - sums over the attention weights of a row, once an
 * instruction set.
 * figures   mass and entropy of each map, sum of |A1 - lambda A2|, how many of
 *           its entries are negative
 * shapes    n keys, n % SHARE_STRIDE == 0
 * sums      double, lane i % 8 in order of i, no fused multiply-add
 * NaN       makes the sums NaN
 * test      tests/kernels/test_attention_share.c */
#include <float.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/vec.h"

enum { LANES = 8, PARTS = LANES / DVEC };
typedef int64_t Lvec __attribute__((vector_size(8 * DVEC)));

typedef struct {
    Dvec weight[2][PARTS], entropy[2][PARTS], diff_abs[PARTS];
    Lvec negative[PARTS];
} Lanes;

ALWAYS Dvec dvec_abs(Dvec x)
{
    return (Dvec)((Lvec)x & INT64_MAX);
}

/* -inf becomes finite, so that 0 log 0 is 0; NaN stays. */
static void make_finite(float *to, const float *x)
{
    for (int j = 0; j < LANES; j++)
        to[j] = x[j] < -FLT_MAX ? -FLT_MAX : x[j];
}

ALWAYS void add(Lanes *l, const ShareStrip *s, int64_t i, int n_maps)
{
    float finite[2][LANES];
    for (int m = 0; m < n_maps; m++)
        make_finite(finite[m], s->x[m] + i);
#pragma GCC unroll 4
    for (int j = 0; j < PARTS; j++) {
        Dvec a[2];
        for (int m = 0; m < n_maps; m++) {
            a[m] = dvec_from(s->p[m] + i + j * DVEC) * s->per_sum[m];
            l->weight[m][j] += a[m];
            l->entropy[m][j] += a[m] * (s->top_log[m] - dvec_from(finite[m] + j * DVEC));
        }
        Dvec diff = n_maps == 2 ? a[0] - a[n_maps - 1] * s->lambda : a[0];
        l->diff_abs[j] += dvec_abs(diff);
        l->negative[j] -= diff < 0;  // true is -1
    }
}

static double sum_lanes(const Dvec *v)
{
    double lane[LANES];
    memcpy(lane, v, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

ALWAYS void run(ShareSums *sums, const ShareStrip *s, int64_t n, int n_maps)
{
    Lanes l = {0};
    int64_t negative[LANES];
    for (int64_t i = 0; i < n; i += LANES)
        add(&l, s, i, n_maps);
    for (int m = 0; m < n_maps; m++) {
        sums->weight[m] += sum_lanes(l.weight[m]);
        sums->entropy[m] += sum_lanes(l.entropy[m]);
    }
    sums->diff_abs += sum_lanes(l.diff_abs);
    memcpy(negative, l.negative, sizeof negative);
    for (int i = 0; i < LANES; i++)
        sums->negative += negative[i];
}

static void share(ShareSums *sums, const ShareStrip *s, int64_t n, int64_t n_maps)
{
    if (n_maps == 2)
        run(sums, s, n, 2);
    else
        run(sums, s, n, 1);
}

const ShareIsa ISA_NAME(share_) = {share};
