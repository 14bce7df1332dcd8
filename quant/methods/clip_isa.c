/* clip_isa.c - the search of clip.c for one group.
 * cost    40 to 100 passes over a group that lies in cache; AVX-512, 4 bits, groups of 64:
 *         41 ns a weight on one core
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

/* Sums over a group, in units of the scale: e = w / scale + zero - code is what
 * rounding and clipping leave, k = code - zero. e is small and is summed itself, so
 * nothing cancels. Each times the weight. */
typedef struct {
    double ee, ek, kk, e, k, h;
} Sums;

typedef struct {
    float ee[LANES], ek[LANES], kk[LANES], e[LANES], k[LANES], h[LANES];
} Lanes;

ALWAYS void add_lane(Lanes *s, int j, float w, float h, RtnGrid g, float inverse)
{
    float x = w * inverse + g.zero;
    float code = x > g.lo ? x : g.lo;
    code = code < g.hi ? code : g.hi;
    code = (code + 0x1.8p23f) - 0x1.8p23f;
    float e = x - code, k = code - g.zero, he = h * e, hk = h * k;
    s->ee[j] += he * e;
    s->ek[j] += he * k;
    s->kk[j] += hk * k;
    s->e[j] += he;
    s->k[j] += hk;
    s->h[j] += h;
}

ALWAYS Sums sums_of(const Search *q, RtnGrid g, bool weighted)
{
    static const float ONES[LANES] = {1, 1, 1, 1, 1, 1, 1, 1};
    const float *w = q->w, *h = weighted ? q->weight : ONES;
    float        inverse = 1 / g.scale;
    Lanes        s = {0};
    int64_t      i = 0;
    for (; i + LANES <= q->n; i += LANES, h += weighted ? LANES : 0)
        for (int j = 0; j < LANES; j++)
            add_lane(&s, j, w[i + j], h[j], g, inverse);
    for (int j = 0; i < q->n; i++, j++)
        add_lane(&s, j, w[i], h[j], g, inverse);
    Sums sum = {0};
    for (int j = 0; j < LANES; j++) {
        sum.ee += (double)s.ee[j];
        sum.ek += (double)s.ek[j];
        sum.kk += (double)s.kk[j];
        sum.e += (double)s.e[j];
        sum.k += (double)s.k[j];
        sum.h += (double)s.h[j];
    }
    return sum;
}

static Sums measure(const Search *q, RtnGrid g)
{
    return q->weight ? sums_of(q, g, true) : sums_of(q, g, false);
}

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

/* Least squares for the codes that g gives: symmetric over the scale, else over scale
 * and offset, of which the zero is what fits. */
static RtnGrid refitted(const Search *q, RtnGrid g, const Sums *s)
{
    double det = s->kk * s->h - s->k * s->k, grow = s->kk > 0 ? s->ek / s->kk : 0, shift = 0;
    /* All codes equal: the scale alone. det is 0 then, but for rounding. */
    if (q->scheme->asym && det > 1e-6 * s->kk * s->h) {
        grow = (s->ek * s->h - s->e * s->k) / det;
        shift = (s->e * s->kk - s->ek * s->k) / det;
    }
    if (!(grow > -0.5))
        return g;
    return stored(q, g.scale * (1 + grow), g.zero - shift / (1 + grow));
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
        lo = fmin(lo, w);
        hi = fmax(hi, w);
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
