/* cpu_record_isa.c - statistics of a strip of values, once an instruction set.
 * strip     extremes, power sums in 16 lanes of double, histogram of magnitudes
 * shapes    any n; a row's strips start at multiples of 16
 * cost      9 operations in double and one memory increment a value
 * sums      lane i % 16 in order of i, no fused multiply-add: as record_moments.c
 * NaN       and infinities are counted apart, value by value
 * test      tests/kernels/test_record.c, each instruction set */
#include <string.h>

#include "kernels/cpu/cpu_record.h"
#include "kernels/cpu/cpu_vec.h"
#include "kernels/half.h"

enum { CHUNK = 512, INFINITE = 0x7f800000, MAGNITUDE = 0x7fffffff };

static uint32_t largest(Ivec v)
{
    int32_t lane[VEC], max = 0;
    memcpy(lane, &v, sizeof lane);
    for (int i = 0; i < VEC; i++)
        max = lane[i] > max ? lane[i] : max;
    return (uint32_t)max;
}

static uint32_t absmax(const float *x, int64_t n)
{
    Ivec top = {0};
    int64_t i = 0;
    uint32_t max;
    for (; i + VEC <= n; i += VEC)
        top = ivec_max(top, ivec_load(x + i) & MAGNITUDE);
    for (max = largest(top); i < n; i++) {
        uint32_t u = f32_bits(x[i]) & MAGNITUDE;
        max = u > max ? u : max;
    }
    return max;
}

/* The columns' largest magnitudes, and one count a value. All finite. */
static void count(const float *x, int64_t n, uint32_t *hist, uint32_t *column)
{
    int32_t bin[CHUNK];
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        Ivec u = ivec_load(x + i) & MAGNITUDE;
        ivec_store(column + i, ivec_max(u, ivec_load(column + i)));
        ivec_store(bin + i, u >> 15);
    }
    for (; i < n; i++) {
        uint32_t u = f32_bits(x[i]) & MAGNITUDE;
        column[i] = u > column[i] ? u : column[i];
        bin[i] = hist_bin(u);
    }
    for (i = 0; i < n; i++)
        hist[bin[i]]++;
}

/* Lanes at .. at + DVEC of the power sums, over x[0..n), n % 16 == 0. */
ALWAYS void power_sums(MomentLanes *row, const float *x, int64_t n, int at)
{
    Dvec shift = (double)row->shift - (Dvec){0};
    Dvec s1 = *(DvecAt *)&row->sum[0][at], s2 = *(DvecAt *)&row->sum[1][at];
    Dvec s3 = *(DvecAt *)&row->sum[2][at], s4 = *(DvecAt *)&row->sum[3][at];
    for (int64_t i = at; i < n; i += MOMENT_LANES) {
        Dvec t = dvec_from(x + i) - shift, t2 = t * t;
        s1 += t;
        s2 += t2;
        s3 += t2 * t;
        s4 += t2 * t2;
    }
    *(DvecAt *)&row->sum[0][at] = s1;
    *(DvecAt *)&row->sum[1][at] = s2;
    *(DvecAt *)&row->sum[2][at] = s3;
    *(DvecAt *)&row->sum[3][at] = s4;
}

static void moments(MomentLanes *row, const float *x, int64_t n)
{
    Vec low = vec_all(row->min), high = vec_all(row->max);
    for (int64_t i = 0; i < n; i += VEC) {
        low = vec_min(vec_load(x + i), low);
        high = vec_max(vec_load(x + i), high);
    }
    float a[VEC], b[VEC];
    memcpy(a, &low, sizeof a);
    memcpy(b, &high, sizeof b);
    for (int i = 0; i < VEC; i++) {
        row->min = a[i] < row->min ? a[i] : row->min;
        row->max = b[i] > row->max ? b[i] : row->max;
    }
    for (int at = 0; at < MOMENT_LANES; at += DVEC)
        power_sums(row, x, n, at);
}

/* n <= CHUNK values, all finite. */
static void add_finite(MomentLanes *row, const float *x, int64_t n)
{
    if (!row->started) {
        row->started = true;
        row->shift = row->min = row->max = x[0];
    }
    int64_t whole = n / MOMENT_LANES * MOMENT_LANES;
    moments(row, x, whole);
    if (whole < n) {  // the shift in place of what is missing adds zeros
        float last[MOMENT_LANES];
        for (int64_t i = 0; i < MOMENT_LANES; i++)
            last[i] = whole + i < n ? x[whole + i] : row->shift;
        moments(row, last, MOMENT_LANES);
    }
    row->seen += n;
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
    uint32_t all = 0;
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < CHUNK ? n - i : CHUNK;
        uint32_t max = absmax(x + i, m);
        if (max >= INFINITE) {
            max = add_special(row, x + i, m, hist, column + i);
        } else {
            count(x + i, m, hist, column + i);
            add_finite(row, x + i, m);
            row->absmax = max > row->absmax ? max : row->absmax;
        }
        all = max > all ? max : all;
    }
    return all;
}

const RecordIsa ISA_NAME(record_) = {strip};
