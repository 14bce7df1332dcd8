/* ref_stats.c - sums over rows. */
#include "tests/quant/ref_stats.h"

#include <math.h>

#include "tests/quant/ref_layer.h"

void ref_stats(InputStats *out, Arena *a, const double *x, int64_t T, int64_t K)
{
    *out = (InputStats){.k = K, .n_rows = T};
    out->gram = arena_alloc(a, K * K, sizeof *out->gram);
    out->sum_abs = arena_alloc(a, K, sizeof *out->sum_abs);
    out->sum2 = arena_alloc(a, K, sizeof *out->sum2);
    out->absmax = arena_alloc(a, K, sizeof *out->absmax);
    CHECK(out->gram && out->sum_abs && out->sum2 && out->absmax);
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < K; i++) {
            double v = x[t * K + i];
            for (int64_t k = 0; k < K; k++)
                out->gram[i * K + k] += v * x[t * K + k];
            out->sum_abs[i] += fabs(v);
            out->sum2[i] += v * v;
            out->absmax[i] = fmaxf(out->absmax[i], (float)fabs(v));
        }
}

double ref_stats_error(const InputStats *a, const InputStats *b)
{
    double worst = 0, most = 0, error = 0;
    for (int64_t k = 0; k < a->k; k++) {
        error = fmax(error, fabs((double)a->absmax[k] - (double)b->absmax[k]));
        most = fmax(most, (double)b->absmax[k]);
    }
    worst = error / most;
    double parts[3] = {ref_layer_error(a->sum_abs, b->sum_abs, a->k),
                       ref_layer_error(a->sum2, b->sum2, a->k),
                       ref_layer_error(a->gram, b->gram, a->k * a->k)};
    for (int i = 0; i < 3; i++)
        worst = !(parts[i] <= worst) ? parts[i] : worst;
    return worst;
}
