/* cpu_record_isa.c - statistics of a strip of values, once an instruction set.
 * strip     extremes, power sums in 16 lanes of double, histogram of magnitudes
 * shapes    any n; a row's strips start at multiples of 16
 * cost      9 operations in double and one memory increment a value
 * sums      lane i % 16 in order of i, no fused multiply-add: as record_moments.c
 * NaN       and infinities are counted apart, value by value
 * test      tests/kernels/test_record.c, each instruction set */
#include <string.h>

#include "kernels/cpu/cpu_record.h"
#include "kernels/vec.h"
#include "kernels/half.h"

enum { CHUNK = 512, INFINITE = 0x7f800000, MAGNITUDE = 0x7fffffff };

/* A look at values that changes nothing yet: they may not all be finite. */
typedef struct {
    uint32_t bin[CHUNK];
    uint32_t absmax;       // bits; INFINITE and up if any value is not finite
    float    min, max;
} Look;

static void look_close(Look *look, Ivec top, Vec low, Vec high)
{
    int32_t t[VEC];
    float a[VEC], b[VEC];
    memcpy(t, &top, sizeof t);
    memcpy(a, &low, sizeof a);
    memcpy(b, &high, sizeof b);
    for (int i = 0; i < VEC; i++) {
        look->absmax = (uint32_t)t[i] > look->absmax ? (uint32_t)t[i] : look->absmax;
        look->min = a[i] < look->min ? a[i] : look->min;
        look->max = b[i] > look->max ? b[i] : look->max;
    }
}

static void look_at(Look *look, const float *x, int64_t n)
{
    Ivec top = {0};
    Vec low = vec_all(x[0]), high = low;
    int64_t i = 0;
    look->absmax = 0;
    look->min = look->max = x[0];
    for (; i + VEC <= n; i += VEC) {
        Vec v = vec_load(x + i);
        Ivec u = (Ivec)v & MAGNITUDE;
        low = vec_min(v, low);
        high = vec_max(v, high);
        top = ivec_max(u, top);
        ivec_store(look->bin + i, u >> 15);
    }
    look_close(look, top, low, high);
    for (; i < n; i++) {
        uint32_t u = f32_bits(x[i]) & MAGNITUDE;
        look->absmax = u > look->absmax ? u : look->absmax;
        look->min = x[i] < look->min ? x[i] : look->min;
        look->max = x[i] > look->max ? x[i] : look->max;
        look->bin[i] = (uint32_t)hist_bin(u);
    }
}

/* VEC of the 16 lanes of the power sums, from lane `at` on. */
typedef struct {
    Dvec s[4][2];
} Sums;

ALWAYS void sums_load(Sums *v, const MomentLanes *row, int at)
{
    for (int p = 0; p < 4; p++)
        for (int j = 0; j < 2; j++)
            v->s[p][j] = *(const DvecAt *)&row->sum[p][at + j * DVEC];
}

ALWAYS void sums_store(const Sums *v, MomentLanes *row, int at)
{
    for (int p = 0; p < 4; p++)
        for (int j = 0; j < 2; j++)
            *(DvecAt *)&row->sum[p][at + j * DVEC] = v->s[p][j];
}

ALWAYS void sums_add(Sums *v, const float *x, Dvec shift)
{
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        Dvec t = dvec_from(x + j * DVEC) - shift, t2 = t * t;
        v->s[0][j] += t;
        v->s[1][j] += t2;
        v->s[2][j] += t2 * t;
        v->s[3][j] += t2 * t2;
    }
}

/* x[0..n), n % 16 == 0: their powers, their counts, their columns, in one loop,
 * because one is arithmetic and the others memory. */
ALWAYS void add_lanes(MomentLanes *row, const float *x, int64_t n, int at,
                      const uint32_t *bin, uint32_t *hist, uint32_t *column)
{
    Dvec shift = (double)row->shift - (Dvec){0};
    Sums sums;
    sums_load(&sums, row, at);
    for (int64_t i = at; i < n; i += MOMENT_LANES) {
        sums_add(&sums, x + i, shift);
        ivec_store(column + i, ivec_max(ivec_load(x + i) & MAGNITUDE, ivec_load(column + i)));
#pragma GCC unroll 16
        for (int j = 0; j < VEC; j++)
            hist[bin[i + j]]++;
    }
    sums_store(&sums, row, at);
}

/* The last n < 16 values of a row. The shift stands for what is missing: zeros. */
static void add_rest(MomentLanes *row, const float *x, int64_t n, const uint32_t *bin,
                     uint32_t *hist, uint32_t *column)
{
    Dvec shift = (double)row->shift - (Dvec){0};
    float last[MOMENT_LANES];
    for (int64_t i = 0; i < MOMENT_LANES; i++)
        last[i] = i < n ? x[i] : row->shift;
    for (int at = 0; at < MOMENT_LANES; at += VEC) {
        Sums sums;
        sums_load(&sums, row, at);
        sums_add(&sums, last + at, shift);
        sums_store(&sums, row, at);
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = f32_bits(x[i]) & MAGNITUDE;
        column[i] = u > column[i] ? u : column[i];
        hist[bin[i]]++;
    }
}

/* n <= CHUNK values, all finite. */
static void add_finite(MomentLanes *row, const float *x, int64_t n, const Look *look,
                       uint32_t *hist, uint32_t *column)
{
    int64_t whole = n / MOMENT_LANES * MOMENT_LANES;
    if (!row->started) {
        row->started = true;
        row->shift = row->min = row->max = x[0];
    }
    row->seen += n;
    row->min = look->min < row->min ? look->min : row->min;
    row->max = look->max > row->max ? look->max : row->max;
    row->absmax = look->absmax > row->absmax ? look->absmax : row->absmax;
    for (int at = 0; at < MOMENT_LANES; at += VEC)
        add_lanes(row, x, whole, at, look->bin, hist, column);
    if (whole < n)
        add_rest(row, x + whole, n - whole, look->bin + whole, hist, column + whole);
}

/* The rare strip with NaN or infinity in it. */
static uint32_t add_special(MomentLanes *row, const float *x, int64_t n, uint32_t *hist,
                            uint32_t *column)
{
    uint32_t max = 0;
    moment_lanes_add(row, x, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = f32_bits(x[i]) & MAGNITUDE;
        if (u >= INFINITE)
            continue;
        column[i] = u > column[i] ? u : column[i];
        max = u > max ? u : max;
        hist[hist_bin(u)]++;
    }
    return max;
}

static uint32_t strip(MomentLanes *row, const float *x, int64_t n, uint32_t *hist,
                      uint32_t *column)
{
    Look look;
    uint32_t all = 0;
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < CHUNK ? n - i : CHUNK;
        look_at(&look, x + i, m);
        if (look.absmax >= INFINITE)
            look.absmax = add_special(row, x + i, m, hist, column + i);
        else
            add_finite(row, x + i, m, &look, hist, column + i);
        all = look.absmax > all ? look.absmax : all;
    }
    return all;
}

const RecordIsa ISA_NAME(record_) = {strip};
