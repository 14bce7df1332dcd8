/* kquant_scales.c - the search among the few scales of a super-block, one at a time. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "quant/methods/kquant_parts.h"

static const float NEARLY_ZERO = 1e-15f;

float kquant_extreme(const float *x, int64_t n)
{
    float most = 0, extreme = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            extreme = x[i];
        }
    return extreme;
}

static float positive_code(float x, int top)
{
    return kquant_clamp(KQUANT_NEAREST(x), 0, (float)top);
}

static float positive_error(const float *x, const float *w, int n, int top, float inverse)
{
    float error = 0, scale = 1 / inverse;
    for (int i = 0; i < n; i++) {
        float d = x[i] - scale * positive_code(inverse * x[i], top);
        error += w[i] * d * d;
    }
    return error;
}

/* Sums that give the best scale for fixed codes: scale = wxl / wll. */
typedef struct {
    float wxl, wll;
} Fit;

/* Gives each code in turn the value that is best with the others as they are. False
 * when none changed. */
static bool positive_sweep(uint8_t *q, Fit *f, const float *x, const float *w, int n, int top)
{
    bool changed = false;
    for (int i = 0; i < n; i++) {
        float l = q[i];
        Fit   rest = {f->wxl - w[i] * x[i] * l, f->wll - w[i] * l * l};
        if (!(rest.wxl > 0 && rest.wll > 0))
            continue;
        float c = positive_code(x[i] * rest.wll / rest.wxl, top);
        if (c == l)
            continue;
        rest.wxl += w[i] * x[i] * c;
        rest.wll += w[i] * c * c;
        if (rest.wxl * rest.wxl * f->wll > f->wxl * f->wxl * rest.wll) {
            q[i] = (uint8_t)c;
            *f = rest;
            changed = true;
        }
    }
    return changed;
}

float kquant_positive(uint8_t *q, const float *x, const float *w, int n, int top)
{
    float max = 0;
    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (max < NEARLY_ZERO) {
        memset(q, 0, (size_t)n);
        return 0;
    }
    float inverse = (float)top / max;
    float best = positive_error(x, w, n, top, inverse);
    for (int k = -4; k <= 4; k++) {
        float other = (0.1f * (float)k + (float)top) / max;
        float error = k ? positive_error(x, w, n, top, other) : best;
        if (error < best) {
            best = error;
            inverse = other;
        }
    }
    Fit f = {0};
    for (int i = 0; i < n; i++) {
        float l = positive_code(inverse * x[i], top);
        q[i] = (uint8_t)l;
        f.wxl += w[i] * x[i] * l;
        f.wll += w[i] * l * l;
    }
    for (int i = 0; i < 5 && positive_sweep(q, &f, x, w, n, top); i++)
        ;
    return f.wll > 0 ? f.wxl / f.wll : 0;
}
