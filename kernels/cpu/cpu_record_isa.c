/* cpu_record_isa.c - statistics of a strip of values, once an instruction set.
 * strip     extremes, power sums in 16 lanes of double, histogram of magnitudes
 * close     a row's lanes to Moments
 * shapes    any n; a row's strips start at multiples of 16
 * cost      9 operations in double and one memory increment a value
 * sums      lane i % 16 in order of i, no fused multiply-add: as record_moments.c
 * NaN       and infinities are counted apart, value by value
 * test      tests/kernels/test_record.c, each instruction set */
#include <string.h>

#include "kernels/cpu/cpu_record.h"
#include "kernels/half.h"
#include "kernels/vec.h"

enum { INFINITE = 0x7f800000, MAGNITUDE = 0x7fffffff };

/* Largest magnitudes in some order: what decides whether all are finite. */
ALWAYS Ivec tops(const float *x, int64_t n)
{
    Ivec    top = {0};
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        top = ivec_max(ivec_load(x + i) & MAGNITUDE, top);
    if (i < n)
        top = ivec_max((Ivec)vec_load_some(x + i, n - i) & MAGNITUDE, top);
    return top;
}

/* hist_bin of bits that lie in memory: in one instruction where there is one. */
ALWAYS uint32_t bin_at(const float *x)
{
#if DQ_ISA_avx512 || DQ_ISA_avx2
    return _bextr_u32(f32_bits(*x), 15, 16);
#else
    return (uint32_t)hist_bin(f32_bits(*x));
#endif
}

/* VEC of the 16 lanes of a row, from lane `at` on. */
typedef struct {
    Dvec sum[4][2];
    Vec  min, max;
} Lanes;

ALWAYS Lanes lanes_load(const MomentLanes *row, int at)
{
    Lanes v;
    for (int p = 0; p < 4; p++)
        for (int j = 0; j < 2; j++)
            v.sum[p][j] = *(const DvecAt *)&row->sum[p][at + j * DVEC];
    v.min = vec_load(row->min + at);
    v.max = vec_load(row->max + at);
    return v;
}

ALWAYS void lanes_store(const Lanes *v, MomentLanes *row, int at)
{
    for (int p = 0; p < 4; p++)
        for (int j = 0; j < 2; j++)
            *(DvecAt *)&row->sum[p][at + j * DVEC] = v->sum[p][j];
    vec_store(row->min + at, v->min);
    vec_store(row->max + at, v->max);
}

ALWAYS void lanes_add(Lanes *v, const float *x, Dvec shift)
{
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        Dvec t = dvec_from(x + j * DVEC) - shift, t2 = t * t;
        v->sum[0][j] += t;
        v->sum[1][j] += t2;
        v->sum[2][j] += t2 * t;
        v->sum[3][j] += t2 * t2;
    }
    v->min = vec_min(vec_load(x), v->min);
    v->max = vec_max(vec_load(x), v->max);
}

/* x[0..n), n % 16 == 0: their powers, their counts, their columns, in one loop,
 * because one is arithmetic and the others memory. */
ALWAYS void add_blocks(MomentLanes *row, const float *x, int64_t n, int at, uint32_t *hist,
                       uint32_t *column)
{
    const Dvec shift = (double)row->shift - (Dvec){0};
    Lanes      lanes = lanes_load(row, at);
    for (int64_t i = at; i < n; i += MOMENT_LANES) {
        Ivec u = ivec_load(x + i) & MAGNITUDE;
        ivec_store(column + i, ivec_max(u, ivec_load(column + i)));
        lanes_add(&lanes, x + i, shift);
        /* From memory: bins stored as a vector would be waited for, value by value. */
#pragma GCC unroll 16
        for (int j = 0; j < VEC; j++)
            hist[bin_at(x + i + j)]++;
    }
    lanes_store(&lanes, row, at);
}

/* The last n < 16 values of a row. The shift, one of its values, stands for what is
 * missing: it adds zeros. */
ALWAYS void add_rest(MomentLanes *row, const float *x, int64_t n, uint32_t *hist,
                     uint32_t *column)
{
    const Dvec shift = (double)row->shift - (Dvec){0};
    float      last[MOMENT_LANES];
    for (int64_t i = 0; i < MOMENT_LANES; i++)
        last[i] = i < n ? x[i] : row->shift;
    for (int at = 0; at < MOMENT_LANES; at += VEC) {
        Lanes lanes = lanes_load(row, at);
        lanes_add(&lanes, last + at, shift);
        lanes_store(&lanes, row, at);
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = f32_bits(x[i]) & MAGNITUDE;
        column[i] = u > column[i] ? u : column[i];
        hist[hist_bin(u)]++;
    }
}

static void add_finite(MomentLanes *row, const float *x, int64_t n, uint32_t *hist,
                       uint32_t *column)
{
    int64_t whole = n / MOMENT_LANES * MOMENT_LANES;
    if (!row->started)
        moment_lanes_start(row, x[0]);
    row->seen += n;
    for (int at = 0; at < MOMENT_LANES; at += VEC)
        add_blocks(row, x, whole, at, hist, column);
    if (whole < n)
        add_rest(row, x + whole, n - whole, hist, column + whole);
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
    uint32_t max = (uint32_t)ivec_top(tops(x, n));
    if (max >= INFINITE)
        return add_special(row, x, n, hist, column);
    if (n > 0)
        add_finite(row, x, n, hist, column);
    return max;
}

const RecordIsa ISA_NAME(record_) = {strip};
