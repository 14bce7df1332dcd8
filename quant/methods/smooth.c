/* smooth.c - scales from the two ranges, folded into norm and columns. */
#include "quant/methods/smooth.h"

#include <math.h>

#include "quant/methods/fold.h"

static const float LEAST = 1e-5f;

static void raise_columns(float *most, const LayerMatrix *m)
{
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t k = 0; k < m->k; k++) {
            float w = fabsf(m->w[i * m->k + k]);
            most[k] = w > most[k] ? w : most[k];
        }
}

Status smooth_norm(LayerWeights *w, int norm, InputStats *in, double alpha, Arena *scratch)
{
    ArenaMark  mark = arena_mark(scratch);
    WeightKind kinds[N_WEIGHTS];
    int        n = fold_readers(w, norm, kinds);
    float     *s;
    CHECK(alpha > 0 && alpha < 1);
    ARENA_NEW(s, scratch, in->k);
    for (int i = 0; i < n; i++) {
        CHECK(w->at[kinds[i]].k == in->k);
        if (!w->at[kinds[i]].float_only)
            raise_columns(s, &w->at[kinds[i]]);
    }
    for (int64_t k = 0; k < in->k; k++) {
        double range = fmax((double)s[k], (double)LEAST), x = (double)in->absmax[k];
        s[k] = fmaxf((float)(pow(x, alpha) / pow(range, 1 - alpha)), LEAST);
        if (!(x > 0))
            s[k] = 1;
    }
    fold_exact(s, w->norm[norm], in->k);
    fold_norm(w, norm, s, in->k);
    for (int i = 0; i < n; i++)
        fold_columns(&w->at[kinds[i]], s);
    fold_inputs(in, s);
    arena_rewind(scratch, mark);
    return OK;
}
