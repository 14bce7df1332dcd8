/* clip_isa.c - the search of clip.c for one group.
 * cost    40 to 100 passes over a group that lies in cache; AVX-512, 4 bits, groups of 64:
 *         33 ns a weight on one core
 * sums    f32 in LANES lanes, joined in double; no fused operations: the same bits with
 *         every instruction set
 * test    tests/quant/test_clip.c, every instruction set */
#include <math.h>

#include "kernels/size.h"
#include "kernels/vec.h"
#include "quant/methods/clip_parts.h"

enum {
    LANES = 8,
    STARTS = 3,      // trials whose codes are refitted
    REFITS = 4,      // times that each is
    WIDER = 8, NARROWER = 16,  // fine trials to both sides of the whole range
    MOST_SHRINKS = 160
};
/* Fine trials change the number of codes in the range, the others shrink it. */
static const double STEP = 0.125, SHRINK = 0.95;
/* A shrinking range is given up at this many times the least error so far. */
static const double GIVE_UP = 4;

typedef struct {
    double  potential;   // error once the scale is fitted to its codes
    RtnGrid grid;
} Trial;

typedef struct {
    const float  *w, *weight;      // [n]; weight NULL: all 1
    int64_t       n;
    const Scheme *scheme;
    double        error;           // least so far, of `best`
    RtnGrid       best;
    Trial         starts[STARTS];  // least potential first
} Search;

/* --- sums over a group --- */

typedef float   Lane     __attribute__((vector_size(4 * LANES)));
typedef int32_t LaneMask __attribute__((vector_size(4 * LANES)));
typedef float   LaneAt   __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* In units of the scale: e = w / scale + zero - code is what rounding and clipping leave,
 * k = code - zero. e is small and is summed itself, so nothing cancels. Each times the
 * weight. */
typedef struct {
    double ee, ek, kk;
} Sums;

typedef struct {
    Lane ee, ek, kk;
} Lanes;

ALWAYS Lane all(float x)
{
    return x - (Lane){0};
}

/* The larger and the smaller; b where either is NaN. */
ALWAYS Lane larger(Lane a, Lane b)
{
#if DQ_ISA_avx512 || DQ_ISA_avx2
    return (Lane)_mm256_max_ps((__m256)a, (__m256)b);
#else
    LaneMask m = a > b;
    return (Lane)((m & (LaneMask)a) | (~m & (LaneMask)b));
#endif
}

ALWAYS Lane smaller(Lane a, Lane b)
{
#if DQ_ISA_avx512 || DQ_ISA_avx2
    return (Lane)_mm256_min_ps((__m256)a, (__m256)b);
#else
    LaneMask m = a < b;
    return (Lane)((m & (LaneMask)a) | (~m & (LaneMask)b));
#endif
}

ALWAYS void add_lanes(Lanes *s, Lane w, Lane h, RtnGrid g, float inverse)
{
    Lane x = w * inverse + g.zero;
    Lane code = smaller(larger(x, all(g.lo)), all(g.hi));
    code = (code + 0x1.8p23f) - 0x1.8p23f;
    Lane e = x - code, k = code - g.zero, he = h * e;
    s->ee += he * e;
    s->ek += he * k;
    s->kk += h * k * k;
}

/* The first n numbers, then zeros. */
ALWAYS Lane some(const float *x, int64_t n)
{
    Lane y = {0};
    for (int j = 0; j < n; j++)
        y[j] = x[j];
    return y;
}

ALWAYS Sums sums_of(const Search *q, RtnGrid g, bool weighted)
{
    static const float ONES[LANES] = {1, 1, 1, 1, 1, 1, 1, 1};
    const float *w = q->w, *h = weighted ? q->weight : ONES;
    float        inverse = 1 / g.scale;
    Lanes        s = {0};
    int64_t      i = 0;
    for (; i + LANES <= q->n; i += LANES, h += weighted ? LANES : 0)
        add_lanes(&s, *(const LaneAt *)(w + i), *(const LaneAt *)h, g, inverse);
    if (i < q->n)
        add_lanes(&s, some(w + i, q->n - i), some(h, q->n - i), g, inverse);
    Sums sum = {0};
    for (int j = 0; j < LANES; j++) {
        sum.ee += (double)s.ee[j];
        sum.ek += (double)s.ek[j];
        sum.kk += (double)s.kk[j];
    }
    return sum;
}

static Sums measure(const Search *q, RtnGrid g)
{
    return q->weight ? sums_of(q, g, true) : sums_of(q, g, false);
}

/* --- the search --- */

/* The grid with the scale that storage makes of it. */
static RtnGrid stored(const Search *q, double scale, double zero)
{
    RtnGrid g = rtn_grid(1, 0, q->scheme);
    g.scale = rtn_stored_scale((float)scale, q->scheme->scale);
    g.zero = q->scheme->asym ? (float)fmin(fmax(rint(zero), g.lo), g.hi) : 0;
    return g;
}

static bool same(RtnGrid a, RtnGrid b)
{
    return a.scale == b.scale && a.zero == b.zero;
}

/* Keeps the trial among the starts if its potential is among the least. */
static void offer(Search *q, Trial t)
{
    for (int i = 0; i < STARTS; i++)
        if (same(q->starts[i].grid, t.grid))
            return;
    for (int i = 0; i < STARTS; i++) {
        if (t.potential < q->starts[i].potential) {
            Trial out = q->starts[i];
            q->starts[i] = t;
            t = out;
        }
    }
}

/* Measures a grid; returns its error. At the ends of what f32 holds that may be NaN,
 * which is less than nothing. */
static double try_grid(Search *q, RtnGrid g, Sums *sums)
{
    Sums   s = measure(q, g);
    double unit = (double)g.scale * g.scale, error = unit * s.ee;
    if (error < q->error) {
        q->error = error;
        q->best = g;
    }
    *sums = s;
    return error;
}

static double try_start(Search *q, double scale, double zero)
{
    Sums    s;
    RtnGrid g = stored(q, scale, zero);
    double  error = try_grid(q, g, &s);
    double  gain = s.kk > 0 ? s.ek * s.ek / s.kk : 0;
    offer(q, (Trial){error - (double)g.scale * g.scale * gain, g});
    return error;
}

/* The scale of least squares for the codes that g gives. The zero stays: fitted as well, it
 * would have to be rounded, and what that costs is more than it gains. */
static RtnGrid refitted(const Search *q, RtnGrid g, const Sums *s)
{
    double grow = s->kk > 0 ? s->ek / s->kk : 0;
    return grow > -0.5 ? stored(q, (double)g.scale * (1 + grow), g.zero) : g;
}

static void refine(Search *q)
{
    for (int i = 0; i < STARTS && q->starts[i].potential < q->error; i++) {
        RtnGrid g = q->starts[i].grid;
        Sums    s = measure(q, g);
        for (int k = 0; k < REFITS; k++) {
            RtnGrid next = refitted(q, g, &s);
            if (same(next, g))
                break;
            double before = (double)g.scale * g.scale * s.ee;
            if (!(try_grid(q, next, &s) < before))
                break;
            g = next;
        }
    }
}

/* Ends of the range of the weights that count. */
static void range_of(const Search *q, double *min, double *max, double *rms)
{
    double lo = 0, hi = 0, sum2 = 0, sum = 0;
    for (int64_t i = 0; i < q->n; i++) {
        double h = q->weight ? q->weight[i] : 1, w = q->w[i];
        if (!(h > 0))
            continue;
        lo = w < lo ? w : lo;
        hi = w > hi ? w : hi;
        sum2 += h * w * w;
        sum += h;
    }
    *min = lo;
    *max = hi;
    *rms = sum > 0 ? sqrt(sum2 / sum) : 0;
}

/* The range [min,max] spread over `steps` steps of the scale. */
static double try_range(Search *q, double min, double max, double steps)
{
    double scale = (max - min) / steps;
    return try_start(q, scale, -(double)(1 << (q->scheme->bits - 1)) - min / scale);
}

/* Symmetric: the largest magnitude falls on code `steps`, from below the last one to
 * beyond; if it is negative there is one code more. */
static void scan_symmetric(Search *q, double amax, double rms)
{
    double top = (double)((1 << (q->scheme->bits - 1)) - 1);
    for (int k = -WIDER; k <= NARROWER; k++)
        try_start(q, amax / (top + STEP * k), 0);
    double steps = top + STEP * NARROWER;
    for (int k = 0; k < MOST_SHRINKS && amax * top > rms * steps; k++) {
        steps /= SHRINK;
        if (try_start(q, amax / steps, 0) > GIVE_UP * q->error)
            break;
    }
}

/* The range shrinks at one end or both. */
static void scan_shrink(Search *q, double min, double max, double rms, bool low, bool high)
{
    double steps = (double)((1 << q->scheme->bits) - 1);
    for (int k = 0; k < MOST_SHRINKS && fmax(low ? -min : 0, high ? max : 0) > rms; k++) {
        min *= low ? SHRINK : 1;
        max *= high ? SHRINK : 1;
        if (try_range(q, min, max, steps) > GIVE_UP * q->error)
            break;
    }
}

static void scan_asymmetric(Search *q, double min, double max, double rms)
{
    double steps = (double)((1 << q->scheme->bits) - 1);
    for (int k = -WIDER; k <= NARROWER; k++)
        try_range(q, min, max, steps + STEP * k);
    scan_shrink(q, min, max, rms, true, true);
    scan_shrink(q, min, max, rms, true, false);
    scan_shrink(q, min, max, rms, false, true);
}

/* The error as it will be: codes of rtn.h, decoded, in double. */
static double exact_error(const Search *q, RtnGrid g)
{
    double error = 0;
    for (int64_t i = 0; i < q->n; i++) {
        double d = (double)q->w[i] - rtn_decode(rtn_code(q->w[i], g), g);
        error += (q->weight ? q->weight[i] : 1) * d * d;
    }
    return error;
}

static RtnGrid search(const float *w, const float *weight, int64_t n, const Scheme *s,
                      RtnGrid whole)
{
    double min, max, rms;
    Search q = {.w = w, .weight = weight, .n = n, .scheme = s, .error = INFINITY,
                .best = whole};
    range_of(&q, &min, &max, &rms);
    if (!(fmax(-min, max) > 0))
        return whole;
    for (int i = 0; i < STARTS; i++)
        q.starts[i].potential = INFINITY;
    if (s->asym)
        scan_asymmetric(&q, min, max, rms);
    else
        scan_symmetric(&q, fmax(-min, max), rms);
    refine(&q);
    return exact_error(&q, q.best) < exact_error(&q, whole) ? q.best : whole;
}

const ClipIsa ISA_NAME(clip_) = {search};
