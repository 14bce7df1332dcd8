/* fold.c - diagonal matrices between layers: multiply here, divide there. */
#include "quant/methods/fold.h"

#include <string.h>

#include "kernels/half.h"

int fold_readers(int norm, WeightKind kinds[N_WEIGHTS])
{
    static const WeightKind READERS[2][3] = {{W_Q, W_K, W_V}, {W_GATE, W_UP}};
    CHECK(norm == 0 || norm == 1);
    memcpy(kinds, READERS[norm], sizeof READERS[norm]);
    return norm == 0 ? 3 : 2;
}

void fold_exact(float *s, const float *norm, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        float stored = bf16_round(norm[k] / s[k]);
        s[k] = stored != 0 ? norm[k] / stored : 1;
    }
}

void fold_norm(float *norm, const float *s, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        norm[k] = bf16_round(norm[k] / s[k]);
}

void fold_rows(LayerMatrix *m, const float *s)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < m->n; i++) {
        for (int64_t k = 0; k < m->k; k++)
            m->w[i * m->k + k] /= s[i];
        if (m->bias)
            m->bias[i] /= s[i];
    }
}

void fold_columns(LayerMatrix *m, const float *s)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t k = 0; k < m->k; k++)
            m->w[i * m->k + k] *= s[k];
}

void fold_inputs(InputStats *in, const float *s)
{
    int64_t K = in->k;
    for (int64_t k = 0; k < K; k++) {
        double t = (double)s[k];
        in->sum_abs[k] /= t;
        in->sum2[k] /= t * t;
        in->absmax[k] /= s[k];
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < K; i++)
        for (int64_t k = 0; k < K && in->gram; k++)
            in->gram[i * K + k] /= (double)s[i] * (double)s[k];
}
