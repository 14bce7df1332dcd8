/* rounding_isa.c - sums of what rounding did.
 * error2 += (w - v)^2, sum2 += w^2
 * shapes  w, v [n], any n >= 0
 * cost    8 bytes, 6 operations in double a weight
 * sums    one chain in each of ROUND_LANES lanes; no fused operations: the same bits with
 *         every instruction set
 * NaN     goes through
 * test    tests/quant/test_rounding.c, every instruction set */
#include "kernels/vec.h"
#include "quant/methods/rounding_parts.h"

enum { PARTS = ROUND_LANES / DVEC };

static void add(RoundSums *s, const float *w, const float *v, int64_t n)
{
    Dvec    error2[PARTS], sum2[PARTS];
    int64_t i = 0;
    for (int j = 0; j < PARTS; j++) {
        error2[j] = *(const DvecAt *)(s->error2 + j * DVEC);
        sum2[j] = *(const DvecAt *)(s->sum2 + j * DVEC);
    }
    for (; i + ROUND_LANES <= n; i += ROUND_LANES)
        for (int j = 0; j < PARTS; j++) {
            Dvec a = dvec_from(w + i + j * DVEC), d = a - dvec_from(v + i + j * DVEC);
            error2[j] += d * d;
            sum2[j] += a * a;
        }
    for (int j = 0; j < PARTS; j++) {
        *(DvecAt *)(s->error2 + j * DVEC) = error2[j];
        *(DvecAt *)(s->sum2 + j * DVEC) = sum2[j];
    }
    for (int j = 0; i < n; i++, j++) {
        double a = (double)w[i], d = a - (double)v[i];
        s->error2[j] += d * d;
        s->sum2[j] += a * a;
    }
}

const RoundingIsa ISA_NAME(rounding_) = {add};
