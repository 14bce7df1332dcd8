/* kquant_search.c - searches of the block formats: try scales, refit by least squares. */
#include "quant/methods/kquant_search.h"

#include <math.h>
#include <string.h>

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

/* --- signed --- */

/* Sums that give the best scale for fixed codes: scale = wxl / wll. */
typedef struct {
    float wxl, wll;
} Fit;

static Fit signed_fit(const float *x, const float *w, int n, int top, float inverse)
{
    Fit f = {0};
    for (int i = 0; i < n; i++) {
        float l = (float)kquant_clamp(kquant_nearest(inverse * x[i]), -top, top - 1);
        f.wxl += w[i] * x[i] * l;
        f.wll += w[i] * l * l;
    }
    return f;
}

float kquant_signed(uint8_t *q, const float *x, const float *w, int n, int top)
{
    float extreme = kquant_extreme(x, n);
    if (fabsf(extreme) < NEARLY_ZERO) {
        memset(q, 0, (size_t)n);
        return 0;
    }
    float inverse = (float)-top / extreme;
    Fit   f = signed_fit(x, w, n, top, inverse);
    float scale = f.wll > 0 ? f.wxl / f.wll : 0, best = scale * f.wxl;
    for (int k = -9; k <= 9; k++) {
        if (k == 0)
            continue;
        float other = -((float)top + 0.1f * (float)k) / extreme;
        f = signed_fit(x, w, n, top, other);
        if (f.wll > 0 && f.wxl * f.wxl > best * f.wll) {
            inverse = other;
            scale = f.wxl / f.wll;
            best = scale * f.wxl;
        }
    }
    for (int i = 0; i < n; i++)
        q[i] = (uint8_t)(top + kquant_clamp(kquant_nearest(inverse * x[i]), -top, top - 1));
    return scale;
}

/* --- range --- */

/* Codes for a given inverse scale and minimum. */
static void range_codes(uint8_t *q, const float *x, int n, int top, float inverse, float min)
{
    for (int i = 0; i < n; i++)
        q[i] = (uint8_t)kquant_clamp(kquant_nearest(inverse * (x[i] - min)), 0, top);
}

static float range_error(const uint8_t *q, const float *x, const float *w, int n, float scale,
                         float min)
{
    float error = 0;
    for (int i = 0; i < n; i++) {
        float d = scale * (float)q[i] + min - x[i];
        error += w[i] * (d * d);
    }
    return error;
}

/* Scale and minimum (<= 0) of least error for these codes. False where they do not
 * determine both. sw, swx: sums of w and w x. */
static bool range_refit(float *scale, float *min, const uint8_t *q, const float *x,
                        const float *w, int n, float sw, float swx)
{
    float l1 = 0, l2 = 0, xl = 0;
    for (int i = 0; i < n; i++) {
        float l = q[i];
        l1 += w[i] * l;
        l2 += w[i] * l * l;
        xl += w[i] * l * x[i];
    }
    float D = sw * l2 - l1 * l1;
    if (!(D > 0))
        return false;
    *scale = (sw * xl - swx * l1) / D;
    *min = (l2 * swx - l1 * xl) / D;
    if (*min > 0) {
        *min = 0;
        *scale = xl / l2;
    }
    return true;
}

float kquant_range(uint8_t *q, float *min, const float *x, const float *w, int n, int top,
                   KquantSteps steps)
{
    float lo = x[0], hi = x[0], sw = w[0], swx = w[0] * x[0];
    for (int i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        sw += w[i];
        swx += w[i] * x[i];
    }
    lo = lo > 0 ? 0 : lo;
    if (!(hi > lo)) {
        memset(q, 0, (size_t)n);
        *min = -lo;
        return 0;
    }
    float inverse = (float)top / (hi - lo), scale = 1 / inverse;
    range_codes(q, x, n, top, inverse, lo);
    float best = range_error(q, x, w, n, scale, lo);
    for (int k = 0; k <= steps.n_steps; k++) {
        uint8_t tried[KQUANT_MOST];
        float   scale_k, lo_k;
        /* lo is the best minimum so far, no longer that of x */
        inverse = (steps.first + steps.step * (float)k + (float)top) / (hi - lo);
        range_codes(tried, x, n, top, inverse, lo);
        if (!range_refit(&scale_k, &lo_k, tried, x, w, n, sw, swx))
            continue;
        float error = range_error(tried, x, w, n, scale_k, lo_k);
        if (error < best) {
            memcpy(q, tried, (size_t)n);
            best = error;
            scale = scale_k;
            lo = lo_k;
        }
    }
    *min = -lo;
    return scale;
}

/* --- positive --- */

static int positive_code(float x, int top)
{
    return kquant_clamp(kquant_nearest(x), 0, top);
}

static float positive_error(const float *x, const float *w, int n, int top, float inverse)
{
    float error = 0, scale = 1 / inverse;
    for (int i = 0; i < n; i++) {
        float d = x[i] - scale * (float)positive_code(inverse * x[i], top);
        error += w[i] * d * d;
    }
    return error;
}

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
        int   code = positive_code(x[i] * rest.wll / rest.wxl, top);
        float c = (float)code;
        if (code == q[i])
            continue;
        rest.wxl += w[i] * x[i] * c;
        rest.wll += w[i] * c * c;
        if (rest.wxl * rest.wxl * f->wll > f->wxl * f->wxl * rest.wll) {
            q[i] = (uint8_t)code;
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
        float l = (float)positive_code(inverse * x[i], top);
        q[i] = (uint8_t)l;
        f.wxl += w[i] * x[i] * l;
        f.wll += w[i] * l * l;
    }
    for (int i = 0; i < 5 && positive_sweep(q, &f, x, w, n, top); i++)
        ;
    return f.wll > 0 ? f.wxl / f.wll : 0;
}
