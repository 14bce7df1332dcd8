/* fold.c - diagonal matrices between layers: multiply here, divide there. */
#include "quant/methods/fold.h"

#include "kernels/half.h"

bool fold_has_norm(const LayerWeights *w, int norm)
{
    CHECK(norm == 0 || norm == 1);
    return w->norm[norm] != NULL;
}

int fold_readers(const LayerWeights *w, int norm, WeightKind kinds[N_WEIGHTS])
{
    bool shared = w->norm[0] && !w->norm[1];
    int  n = 0;
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        Tap tap = tap_of_weight((WeightKind)kind);
        if (w->at[kind].w && (tap == (norm ? TAP_MLP_IN : TAP_QKV_IN) ||
                              (shared && norm == 0 && tap == TAP_MLP_IN)))
            kinds[n++] = (WeightKind)kind;
    }
    return n;
}

void fold_exact(float *s, const float *norm, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        float stored = bf16_round(norm[k] / s[k]);
        s[k] = stored != 0 ? norm[k] / stored : 1;
    }
}

void fold_norm(LayerWeights *w, int norm, const float *s, int64_t n)
{
    float *bias = w->norm_bias[norm];
    for (int64_t k = 0; k < n; k++)
        w->norm[norm][k] = bf16_round(w->norm[norm][k] / s[k]);
    for (int64_t k = 0; bias && k < n; k++)
        bias[k] /= s[k];
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
