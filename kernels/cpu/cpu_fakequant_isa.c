/* cpu_fakequant_isa.c - values to those that codes of few bits decode to.
 * symmetric  x' = s round(x / s), codes low .. high, one s given for n values
 * span       x' = s round((x - m) / s) + m, m = min, s = (max - min) / levels, of n values
 * columns    the same for each of n columns of `rows` rows
 * shapes     any n, rows >= 1
 * sums       none; no fused operations: the same bits with every instruction set
 * NaN        NaN or infinity makes all that share its scale NaN
 * test       tests/kernels/test_fakequant.c, every instruction set */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_vec_round.h"

static uint32_t absmax(const float *x, int64_t n)
{
    return absmax_bits(x, n);
}

static void symmetric(float *x, int64_t n, float scale, float low, float high)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(x + i, round_to_scale(vec_load(x + i), scale, low, high));
    if (i < n) {
        float  rest[VEC] = {0};
        size_t bytes = (size_t)(n - i) * sizeof *x;
        memcpy(rest, x + i, bytes);
        vec_store(rest, round_to_scale(vec_load(rest), scale, low, high));
        memcpy(x + i, rest, bytes);
    }
}

/* --- minimum to maximum --- */

/* Lanes are apart. poison: 0, or NaN once a NaN or infinity came by, which minima and
 * maxima may lose. */
typedef struct {
    Vec min, max, poison;
} Range;

ALWAYS Range range_of(Vec v)
{
    return (Range){v, v, v * vec_all(0)};
}

ALWAYS void range_add(Range *r, Vec v)
{
    r->min = vec_min(v, r->min);
    r->max = vec_max(v, r->max);
    r->poison += v * vec_all(0);
}

typedef struct {
    Vec scale, divisor, min;
} Grid;

/* Equal values have scale 0 and stay as they are. */
ALWAYS Grid grid_of(const Range *r, float levels)
{
    Vec scale = (r->max - r->min) / vec_all(levels) + r->poison;
    return (Grid){scale, vec_if_less(vec_all(0), scale, scale, vec_all(1)), r->min};
}

ALWAYS Vec round_to_grid(Vec v, const Grid *g, float levels)
{
    return round_within((v - g->min) / g->divisor, 0, levels) * g->scale + g->min;
}

/* n <= VEC values at p; the lanes after them hold copies of the first. */
ALWAYS Vec load_some(const float *p, int64_t n)
{
    float part[VEC];
    if (n == VEC)
        return vec_load(p);
    for (int i = 0; i < VEC; i++)
        part[i] = p[i < n ? i : 0];
    return vec_load(part);
}

ALWAYS void store_some(float *p, Vec v, int64_t n)
{
    float part[VEC];
    if (n == VEC) {
        vec_store(p, v);
        return;
    }
    vec_store(part, v);
    memcpy(p, part, (size_t)n * sizeof *p);
}

/* All lanes get what they have together. */
ALWAYS void range_join(Range *r)
{
    float min[VEC], max[VEC], poison[VEC];
    vec_store(min, r->min);
    vec_store(max, r->max);
    vec_store(poison, r->poison);
    for (int i = 1; i < VEC; i++) {
        min[0] = min[i] < min[0] ? min[i] : min[0];
        max[0] = max[i] > max[0] ? max[i] : max[0];
        poison[0] += poison[i];
    }
    *r = (Range){vec_all(min[0]), vec_all(max[0]), vec_all(poison[0])};
}

ALWAYS int64_t lanes_left(int64_t n)
{
    return n < VEC ? n : VEC;
}

static void span(float *x, int64_t n, float levels)
{
    Range r = range_of(load_some(x, lanes_left(n)));
    for (int64_t i = VEC; i < n; i += VEC)
        range_add(&r, load_some(x + i, lanes_left(n - i)));
    range_join(&r);
    Grid g = grid_of(&r, levels);
    for (int64_t i = 0; i < n; i += VEC) {
        int64_t some = lanes_left(n - i);
        store_some(x + i, round_to_grid(load_some(x + i, some), &g, levels), some);
    }
}

static void columns(float *x, int64_t rows, int64_t n, float levels)
{
    for (int64_t c = 0; c < n; c += VEC) {
        int64_t some = lanes_left(n - c);
        Range   r = range_of(load_some(x + c, some));
        for (int64_t t = 1; t < rows; t++)
            range_add(&r, load_some(x + t * n + c, some));
        Grid g = grid_of(&r, levels);
        for (int64_t t = 0; t < rows; t++) {
            float *at = x + t * n + c;
            store_some(at, round_to_grid(load_some(at, some), &g, levels), some);
        }
    }
}

const FakequantIsa ISA_NAME(fakequant_) = {absmax, symmetric, span, columns};
