/* kquant_search_isa.c - searches of the block formats: try scales, refit by least squares.
 * Lanes that do not take part (all alike, all zero) compute what they like, NaN too, and
 * are set right at the end.
 * cost    a trial is 5 to 9 operations on each number of VEC groups: bound by arithmetic
 * sums    one chain a lane, in the order of the numbers; no fused operations: the same bits
 *         with every instruction set
 * test    tests/quant/test_kquant.c, every instruction set */
#include <string.h>

#include "quant/methods/kquant_search.h"

#define NEARLY_ZERO 1e-15f

/* --- signed --- */

ALWAYS Vec extremes(const Vec *x, int n)
{
    Vec extreme = {0};
    for (int i = 0; i < n; i++)
        extreme = vec_if_less(vec_abs(extreme), vec_abs(x[i]), x[i], extreme);
    return extreme;
}

/* Sums that give the best scale for the codes of inverse: scale = wxl / wll. wx: w x. */
ALWAYS void signed_fit(Vec *wxl, Vec *wll, const Vec *x, const Vec *w, const Vec *wx, int n,
                       int top, Vec inverse)
{
    Vec xl = {0}, ll = {0};
    for (int i = 0; i < n; i++) {
        Vec l = kquant_within(vec_nearest(inverse * x[i]), (float)-top, (float)(top - 1));
        xl += wx[i] * l;
        ll += w[i] * l * l;
    }
    *wxl = xl;
    *wll = ll;
}

void ISA_NAME(kquant_signed_)(Vec *q, Vec *scale, const Vec *x, const Vec *w, int n, int top)
{
    const Vec zero = {0}, one = vec_all(1), half = vec_all((float)top);
    const Vec extreme = extremes(x, n);
    Vec       inverse = -half / extreme, wxl, wll, wx[KQUANT_MOST];
    for (int i = 0; i < n; i++)
        wx[i] = w[i] * x[i];
    signed_fit(&wxl, &wll, x, w, wx, n, top, inverse);
    Vec fitted = vec_if_equal(wll, zero, zero, wxl / wll);  // NaN where the sums overflow
    Vec best = fitted * wxl;
    for (int k = -9; k <= 9; k++) {
        Vec other = vec_all(-((float)top + 0.1f * (float)k)) / extreme;
        if (k == 0)
            continue;
        signed_fit(&wxl, &wll, x, w, wx, n, top, other);
        Vec better = vec_if_less(best * wll, wxl * wxl, one, zero);
        better = vec_if_less(zero, wll, better, zero);
        inverse = vec_if_less(zero, better, other, inverse);
        fitted = vec_if_less(zero, better, wxl / wll, fitted);
        best = vec_if_less(zero, better, fitted * wxl, best);
    }
    const Vec nearly = vec_all(NEARLY_ZERO), size = vec_abs(extreme);
    *scale = vec_if_less(size, nearly, zero, fitted);
    for (int i = 0; i < n; i++) {
        Vec l = kquant_within(vec_nearest(inverse * x[i]), (float)-top, (float)(top - 1));
        q[i] = vec_if_less(size, nearly, zero, l + half);
    }
}

/* --- range --- */

/* What a group's codes, scale and minimum are judged by; sw, swx: sums of w and w x. */
typedef struct {
    const Vec *x, *w;
    int        n;
    float      top;
    Vec        lo, hi, sw, swx;
} Range;

/* lo is no more than 0: zeros should stay near zero. */
ALWAYS void range_open(Range *r)
{
    const Vec *x = r->x, *w = r->w;
    r->lo = r->hi = x[0];
    r->sw = w[0];
    r->swx = w[0] * x[0];
    for (int i = 1; i < r->n; i++) {
        r->lo = vec_if_less(x[i], r->lo, x[i], r->lo);
        r->hi = vec_if_less(r->hi, x[i], x[i], r->hi);
        r->sw += w[i];
        r->swx += w[i] * x[i];
    }
    r->lo = vec_if_less(vec_all(0), r->lo, vec_all(0), r->lo);
}

/* Code of number i for a given inverse scale and minimum. */
ALWAYS Vec range_code(const Range *r, int i, Vec inverse, Vec lo)
{
    return kquant_within(vec_nearest(inverse * (r->x[i] - lo)), 0, r->top);
}

ALWAYS Vec range_error(const Range *r, const Vec *q, Vec scale, Vec lo)
{
    Vec error = {0};
    for (int i = 0; i < r->n; i++) {
        Vec d = scale * q[i] + lo - r->x[i];
        error += r->w[i] * (d * d);
    }
    return error;
}

/* Codes q, and scale and minimum (<= 0) of least error for them. Returns what is above 0
 * where the codes determine both. */
ALWAYS Vec range_refit(Vec *q, Vec *scale, Vec *lo, const Range *r, Vec inverse, Vec from)
{
    const Vec zero = {0};
    Vec       l1 = zero, l2 = zero, xl = zero;
    for (int i = 0; i < r->n; i++) {
        q[i] = range_code(r, i, inverse, from);
        Vec wl = r->w[i] * q[i];
        l1 += wl;
        l2 += wl * q[i];
        xl += wl * r->x[i];
    }
    Vec D = r->sw * l2 - l1 * l1;
    Vec both = (l2 * r->swx - l1 * xl) / D;
    *scale = vec_if_less(zero, both, xl / l2, (r->sw * xl - r->swx * l1) / D);
    *lo = vec_if_less(zero, both, zero, both);
    return D;
}

void ISA_NAME(kquant_range_)(Vec *q, Vec *scale, Vec *min, const Vec *x, const Vec *w, int n,
                             int top, KquantSteps steps)
{
    const Vec zero = {0}, one = vec_all(1);
    Range     r = {.x = x, .w = w, .n = n, .top = (float)top};
    Vec       tried[KQUANT_MOST];
    range_open(&r);
    const Vec first_lo = r.lo;
    Vec       lo = r.lo, inverse = vec_all(r.top) / (r.hi - lo), fitted = one / inverse;
    Vec       used_inverse = inverse, used_lo = lo;  // that the best codes came from
    for (int i = 0; i < n; i++)
        tried[i] = range_code(&r, i, inverse, lo);
    Vec best = range_error(&r, tried, fitted, lo);
    for (int k = 0; k <= steps.n_steps; k++) {
        Vec scale_k, lo_k;
        /* lo is the best minimum so far, no longer that of x */
        inverse = vec_all(steps.first + steps.step * (float)k + (float)top) / (r.hi - lo);
        Vec both = range_refit(tried, &scale_k, &lo_k, &r, inverse, lo);
        Vec error = range_error(&r, tried, scale_k, lo_k);
        Vec better = vec_if_less(zero, both, vec_if_less(error, best, one, zero), zero);
        used_inverse = vec_if_less(zero, better, inverse, used_inverse);
        used_lo = vec_if_less(zero, better, lo, used_lo);
        best = vec_if_less(zero, better, error, best);
        fitted = vec_if_less(zero, better, scale_k, fitted);
        lo = vec_if_less(zero, better, lo_k, lo);
    }
    for (int i = 0; i < n; i++)  // 0 where all are alike: infinity times 0
        q[i] = range_code(&r, i, used_inverse, used_lo);
    *scale = vec_if_less(first_lo, r.hi, fitted, zero);
    *min = -vec_if_less(first_lo, r.hi, lo, first_lo);
}
