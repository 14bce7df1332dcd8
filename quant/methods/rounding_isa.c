/* rounding_isa.c - weights onto the grid of their group, and sums of what that did.
 * code = round half to even (w / scale + zero), clamped; back = scale (code - zero)
 * error2 += (w - back)^2, sum2 += w^2
 * shapes  groups of any n >= 1
 * cost    AVX-512, groups of 32: 0.4 ns a weight on one core with codes, back and sums
 * sums    one chain in each of ROUND_LANES lanes; no fused operations: the same bits with
 *         every instruction set
 * NaN     one, or infinity, has no grid; add lets it through
 * test    tests/quant/test_rtn.c, test_rounding.c, every instruction set */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"
#include "kernels/vec.h"
#include "quant/methods/rounding_parts.h"

enum { PARTS = ROUND_LANES / DVEC, CHUNK = 256 };

/* --- sums --- */

ALWAYS void add_all(RoundSums *s, const float *w, const float *v, int64_t n)
{
    Dvec    error2[PARTS], sum2[PARTS];
    int64_t i = 0;
    for (int j = 0; j < PARTS; j++) {
        error2[j] = *(const DvecAt *)(s->error2 + j * DVEC);
        sum2[j] = *(const DvecAt *)(s->sum2 + j * DVEC);
    }
    for (; i + ROUND_LANES <= n; i += ROUND_LANES)
        for (int j = 0; j < PARTS; j++) {
            Dvec a = dvec_from(w + i + j * DVEC), d = a - dvec_from(v + i + j * DVEC);
            error2[j] += d * d;
            sum2[j] += a * a;
        }
    for (int j = 0; j < PARTS; j++) {
        *(DvecAt *)(s->error2 + j * DVEC) = error2[j];
        *(DvecAt *)(s->sum2 + j * DVEC) = sum2[j];
    }
    for (int j = 0; i < n; i++, j++) {
        double a = (double)w[i], d = a - (double)v[i];
        s->error2[j] += d * d;
        s->sum2[j] += a * a;
    }
}

static void add(RoundSums *s, const float *w, const float *v, int64_t n)
{
    add_all(s, w, v, n);
}

/* --- the grid of a group --- */

/* Smallest and largest of w[0..n) and 0. False if a NaN or Inf is among them: the bits of
 * magnitudes are those of infinity or more, which minima and maxima may lose. */
ALWAYS bool range_of(float *min, float *max, const float *w, int64_t n)
{
    Vec  lo = {0}, hi = {0};
    Ivec top = {0};
    for (int64_t i = 0; i < n; i += VEC) {
        Vec v = n - i < VEC ? vec_load_some(w + i, n - i) : vec_load(w + i);
        lo = vec_min(v, lo);
        hi = vec_max(v, hi);
        top = ivec_max(top, (Ivec)v & 0x7fffffff);
    }
    *min = -vec_top(-lo);
    *max = vec_top(hi);
    return ivec_top(top) < 0x7f800000;
}

/* Of weights from min <= 0 to max >= 0; the scale is infinite where it cannot be stored. */
ALWAYS RtnGrid grid_of(float min, float max, const Scheme *s)
{
    RtnGrid g = rtn_grid(1, 0, s);
    float   lo = g.lo, hi = g.hi;
    g.lo = s->asym ? lo : -hi;
    if (min == 0 && max == 0)
        return g;
    /* In double: max - min may not fit a float. */
    double most = -min > max ? -min : max;
    double scale = s->asym ? ((double)max - min) / (hi - lo) : most / hi;
    g.scale = rtn_stored_scale((float)scale, s->scale);
    if (s->asym) {
        double zero = rint(lo - min / (double)g.scale);
        g.zero = (float)(zero < lo ? lo : zero > hi ? hi : zero);
    }
    return g;
}

ALWAYS bool fit_group(RtnGrid *g, const float *w, int64_t n, const Scheme *s)
{
    float min, max;
    if (!range_of(&min, &max, w, n))
        return false;
    *g = grid_of(min, max, s);
    return isfinite(g->scale);
}

static bool fit(RtnGrid *g, const float *w, int64_t n, const Scheme *s)
{
    return fit_group(g, w, n, s);
}

static int64_t first_bad(const float *w, int64_t n, int64_t groups, const Scheme *s)
{
    RtnGrid g;
    int64_t i = 0;
    while (i < groups && fit_group(&g, w + i * n, n, s))
        i++;
    return i;
}

/* --- onto it --- */

/* rtn.h's rtn_code and rtn_decode. */
ALWAYS Vec round_vec(Vec *back, Vec w, RtnGrid g)
{
    const Vec shifter = vec_all(0x1.8p23f);
    Vec       x = w / vec_all(g.scale) + vec_all(g.zero);
    x = vec_min(vec_max(x, vec_all(g.lo)), vec_all(g.hi));
    x = (x + shifter) - shifter;
    *back = vec_all(g.scale) * (x - vec_all(g.zero));
    return x;
}

/* n weights of a group; codes may be NULL. */
ALWAYS void round_some(int8_t *codes, float *back, const float *w, int64_t n, RtnGrid g)
{
    int64_t i = 0;
    Vec     v;
    for (; i + VEC <= n; i += VEC) {
        Vec code = round_vec(&v, vec_load(w + i), g);
        vec_store(back + i, v);
        if (codes)
            ivec_store_bytes(codes + i, __builtin_convertvector(code, Ivec));
    }
    if (i < n) {
        int8_t rest[VEC];
        Vec    code = round_vec(&v, vec_load_some(w + i, n - i), g);
        vec_store_some(back + i, v, n - i);
        ivec_store_bytes(rest, __builtin_convertvector(code, Ivec));
        if (codes)
            memcpy(codes + i, rest, (size_t)(n - i));
    }
}

ALWAYS void round_group(const RoundGroups *r, int64_t group, RtnGrid g)
{
    for (int64_t first = 0; first < r->n; first += CHUNK) {
        int64_t n = i64_min(CHUNK, r->n - first), at = group * r->n + first;
        float   back[CHUNK];
        round_some(r->codes ? r->codes + at : NULL, back, r->w + at, n, g);
        if (r->sums)
            add_all(r->sums, r->w + at, back, n);
        if (r->back)
            memcpy(r->back + at, back, (size_t)n * sizeof *back);
    }
}

static int64_t round_groups(const RoundGroups *r, int64_t groups)
{
    for (int64_t i = 0; i < groups; i++) {
        RtnGrid g;
        if (!fit_group(&g, r->w + i * r->n, r->n, r->scheme))
            return i;
        round_group(r, i, g);
        if (r->scales)
            r->scales[i] = g.scale;
        if (r->zeros)
            r->zeros[i] = (int8_t)g.zero;
    }
    return groups;
}

static void onto(const RoundGroups *r, RtnGrid g)
{
    round_group(r, 0, g);
}

const RoundingIsa ISA_NAME(rounding_) = {add, fit, first_bad, round_groups, onto};
