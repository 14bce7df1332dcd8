/* kquant_search.c - searches of the block formats: try scales, refit by least squares.
 * Lanes that do not take part (all alike, all zero) compute what they like, NaN too, and
 * are set right at the end. */
#include "quant/methods/kquant_search.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef int32_t Masks __attribute__((vector_size(4 * KQUANT_LANES)));

/* a where the mask is set, b elsewhere. */
#define PICK(mask, a, b) ((Lanes)(((Masks)(a) & (mask)) | ((Masks)(b) & ~(mask))))

static const float NEARLY_ZERO = 1e-15f;

static inline Lanes all(float x)
{
    return (Lanes){x, x, x, x};
}

/* NaN becomes lo. */
static inline Lanes clamp(Lanes x, Lanes lo, Lanes hi)
{
    x = PICK(x > lo, x, lo);
    return PICK(x < hi, x, hi);
}

static inline Lanes magnitude(Lanes x)
{
    return (Lanes)((Masks)x & 0x7fffffff);
}

void kquant_gather(Lanes *out, const float *x, int groups, int n)
{
    for (int i = 0; i < n; i++)
        for (int g = 0; g < KQUANT_LANES; g++)
            out[i][g] = g < groups ? x[g * n + i] : 0;
}

void kquant_scatter(uint8_t *q, const Lanes *codes, int groups, int n)
{
    for (int i = 0; i < n; i++)
        for (int g = 0; g < groups; g++)
            q[g * n + i] = (uint8_t)codes[i][g];
}

/* --- signed --- */

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

static Lanes extremes(const Lanes *x, int n)
{
    Lanes extreme = {0};
    for (int i = 0; i < n; i++)
        extreme = PICK(magnitude(x[i]) > magnitude(extreme), x[i], extreme);
    return extreme;
}

/* Sums that give the best scale for the codes of inverse: scale = wxl / wll. */
static inline void signed_fit(Lanes *wxl, Lanes *wll, const Lanes *x, const Lanes *w, int n,
                              int top, Lanes inverse)
{
    const Lanes lo = all((float)-top), hi = all((float)(top - 1));
    Lanes       xl = {0}, ll = {0};
    for (int i = 0; i < n; i++) {
        Lanes l = clamp(KQUANT_NEAREST(inverse * x[i]), lo, hi);
        xl += w[i] * x[i] * l;
        ll += w[i] * l * l;
    }
    *wxl = xl;
    *wll = ll;
}

void kquant_signed(Lanes *q, Lanes *scale, const Lanes *x, const Lanes *w, int n, int top)
{
    const Lanes zero = {0}, half = all((float)top);
    const Lanes extreme = extremes(x, n);
    Lanes       inverse = -half / extreme, wxl, wll;
    signed_fit(&wxl, &wll, x, w, n, top, inverse);
    Lanes fitted = PICK(wll == zero, zero, wxl / wll);  // NaN where the sums overflow
    Lanes best = fitted * wxl;
    for (int k = -9; k <= 9; k++) {
        Lanes other = all(-((float)top + 0.1f * (float)k)) / extreme;
        if (k == 0)
            continue;
        signed_fit(&wxl, &wll, x, w, n, top, other);
        Masks better = (wll > zero) & (wxl * wxl > best * wll);
        inverse = PICK(better, other, inverse);
        fitted = PICK(better, wxl / wll, fitted);
        best = PICK(better, fitted * wxl, best);
    }
    const Masks empty = magnitude(extreme) < all(NEARLY_ZERO);
    *scale = PICK(empty, zero, fitted);
    for (int i = 0; i < n; i++) {
        Lanes l = clamp(KQUANT_NEAREST(inverse * x[i]), -half, half - 1.0f);
        q[i] = PICK(empty, zero, l + half);
    }
}

/* --- range --- */

/* What a group's codes, scale and minimum are judged by; sw, swx: sums of w and w x. */
typedef struct {
    const Lanes *x, *w;
    int          n;
    Lanes        top, lo, hi, sw, swx;
} Range;

/* lo is no more than 0: zeros should stay near zero. */
static void range_open(Range *r)
{
    const Lanes *x = r->x, *w = r->w;
    r->lo = r->hi = x[0];
    r->sw = w[0];
    r->swx = w[0] * x[0];
    for (int i = 1; i < r->n; i++) {
        r->lo = PICK(x[i] < r->lo, x[i], r->lo);
        r->hi = PICK(x[i] > r->hi, x[i], r->hi);
        r->sw += w[i];
        r->swx += w[i] * x[i];
    }
    r->lo = PICK(r->lo > all(0), all(0), r->lo);
}

/* Codes for a given inverse scale and minimum. */
static inline void range_codes(Lanes *q, const Range *r, Lanes inverse, Lanes lo)
{
    for (int i = 0; i < r->n; i++)
        q[i] = clamp(KQUANT_NEAREST(inverse * (r->x[i] - lo)), all(0), r->top);
}

static inline Lanes range_error(const Range *r, const Lanes *q, Lanes scale, Lanes lo)
{
    Lanes error = {0};
    for (int i = 0; i < r->n; i++) {
        Lanes d = scale * q[i] + lo - r->x[i];
        error += r->w[i] * (d * d);
    }
    return error;
}

/* Scale and minimum (<= 0) of least error for these codes; where they do not determine
 * both, the mask is not set. */
static inline Masks range_refit(Lanes *scale, Lanes *lo, const Range *r, const Lanes *q)
{
    const Lanes zero = {0};
    Lanes       l1 = zero, l2 = zero, xl = zero;
    for (int i = 0; i < r->n; i++) {
        Lanes wl = r->w[i] * q[i];
        l1 += wl;
        l2 += wl * q[i];
        xl += wl * r->x[i];
    }
    Lanes D = r->sw * l2 - l1 * l1;
    *scale = (r->sw * xl - r->swx * l1) / D;
    *lo = (l2 * r->swx - l1 * xl) / D;
    Masks above = *lo > zero;
    *lo = PICK(above, zero, *lo);
    *scale = PICK(above, xl / l2, *scale);
    return D > zero;
}

void kquant_range(Lanes *q, Lanes *scale, Lanes *min, const Lanes *x, const Lanes *w, int n,
                  int top, KquantSteps steps)
{
    Range r = {.x = x, .w = w, .n = n, .top = all((float)top)};
    Lanes tried[KQUANT_MOST];
    range_open(&r);
    const Masks flat = ~(r.hi > r.lo);
    Lanes       lo = r.lo, inverse = r.top / (r.hi - lo), fitted = all(1) / inverse;
    Lanes       used_inverse = inverse, used_lo = lo;  // that the best codes came from
    range_codes(tried, &r, inverse, lo);
    Lanes best = range_error(&r, tried, fitted, lo);
    for (int k = 0; k <= steps.n_steps; k++) {
        Lanes scale_k, lo_k;
        /* lo is the best minimum so far, no longer that of x */
        inverse = all(steps.first + steps.step * (float)k + (float)top) / (r.hi - lo);
        range_codes(tried, &r, inverse, lo);
        Masks better = range_refit(&scale_k, &lo_k, &r, tried);
        Lanes error = range_error(&r, tried, scale_k, lo_k);
        better &= error < best;
        used_inverse = PICK(better, inverse, used_inverse);
        used_lo = PICK(better, lo, used_lo);
        best = PICK(better, error, best);
        fitted = PICK(better, scale_k, fitted);
        lo = PICK(better, lo_k, lo);
    }
    range_codes(q, &r, used_inverse, used_lo);  // 0 where all are alike: infinity times 0
    *scale = PICK(flat, all(0), fitted);
    *min = -PICK(flat, r.lo, lo);
}

/* --- positive --- */

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
