/* record_moments.c - count, extremes and the first four moments of a stream.
 *
 * A row is summed about its first finite value s, a member of the row. For any
 * member, (s - mean)^2 <= m2 and (s - mean)^4 <= m4: going from powers about s
 * to powers about the mean cancels at most a factor of 8 (n + 1), whatever the
 * data. With s = 0 a large mean would cancel everything. */
#include "kernels/record.h"

#include <math.h>

#include "kernels/half.h"
#include "kernels/size.h"

void moments_init(Moments *m)
{
    *m = (Moments){.min = INFINITY, .max = -INFINITY};
}

static void count_special(MomentLanes *row, float x)
{
    if (isnan(x))
        row->n_nan++;
    else if (x > 0)
        row->n_pos_inf++;
    else
        row->n_neg_inf++;
}

void moment_lanes_start(MomentLanes *row, float x)
{
    row->started = true;
    row->shift = x;
    for (int i = 0; i < MOMENT_LANES; i++)
        row->min[i] = row->max[i] = x;
}

static void lanes_add_one(MomentLanes *row, float x)
{
    int lane = (int)(row->seen++ % MOMENT_LANES);
    if (!isfinite(x)) {
        count_special(row, x);
        return;
    }
    if (!row->started)
        moment_lanes_start(row, x);
    row->min[lane] = x < row->min[lane] ? x : row->min[lane];
    row->max[lane] = x > row->max[lane] ? x : row->max[lane];
    double t = (double)x - (double)row->shift, t2 = t * t;
    row->sum[0][lane] += t;
    row->sum[1][lane] += t2;
    row->sum[2][lane] += t2 * t;
    row->sum[3][lane] += t2 * t2;
}

void moment_lanes_add(MomentLanes *row, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        lanes_add_one(row, x[i]);
}

/* Pairs eight, four, two and one apart: a fixed order that stays in registers. */
static inline double sum_lanes(const double x[MOMENT_LANES])
{
    double a[8], b[4];
    for (int i = 0; i < 8; i++)
        a[i] = x[i] + x[i + 8];
    for (int i = 0; i < 4; i++)
        b[i] = a[i] + a[i + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

void moment_lanes_close(Moments *m, const MomentLanes *row)
{
    moments_init(m);
    m->n_nan = row->n_nan;
    m->n_pos_inf = row->n_pos_inf;
    m->n_neg_inf = row->n_neg_inf;
    m->count = row->seen - row->n_nan - row->n_pos_inf - row->n_neg_inf;
    if (m->count == 0)
        return;
    m->min = (double)row->min[0];
    m->max = (double)row->max[0];
    for (int i = 1; i < MOMENT_LANES; i++) {
        m->min = (double)row->min[i] < m->min ? (double)row->min[i] : m->min;
        m->max = (double)row->max[i] > m->max ? (double)row->max[i] : m->max;
    }
    double n = (double)m->count;
    double s2 = sum_lanes(row->sum[1]);
    double s3 = sum_lanes(row->sum[2]), s4 = sum_lanes(row->sum[3]);
    double c = sum_lanes(row->sum[0]) / n, c2 = c * c;  // mean - shift
    m->mean = (double)row->shift + c;
    m->m2 = fmax(s2 - n * c2, 0);
    m->m3 = s3 - 3 * c * s2 + 2 * n * c2 * c;
    m->m4 = fmax(s4 - 4 * c * s3 + 6 * c2 * s2 - 3 * n * c2 * c2, 0);
}

void moments_add(Moments *m, const float *x, int64_t n)
{
    MomentLanes row = {0};
    Moments add;
    moment_lanes_add(&row, x, n);
    moment_lanes_close(&add, &row);
    moments_merge(m, &add);
}

void moments_merge(Moments *into, const Moments *from)
{
    into->n_nan += from->n_nan;
    into->n_pos_inf += from->n_pos_inf;
    into->n_neg_inf += from->n_neg_inf;
    if (from->count == 0)
        return;
    into->min = from->min < into->min ? from->min : into->min;
    into->max = from->max > into->max ? from->max : into->max;
    double a = (double)into->count, b = (double)from->count;
    double per_n = 1 / (a + b);
    double fa = a * per_n, fb = b * per_n;  // shares of the count
    double d = from->mean - into->mean, d2 = d * d, ab = a * fb;
    into->m4 += from->m4 + d2 * d2 * ab * (fa * fa - fa * fb + fb * fb) +
                6 * d2 * (fa * fa * from->m2 + fb * fb * into->m2) +
                4 * d * (fa * from->m3 - fb * into->m3);
    into->m3 += from->m3 + d2 * d * ab * (fa - fb) +
                3 * d * (fa * from->m2 - fb * into->m2);
    into->m2 += from->m2 + d2 * ab;
    into->mean += d * fb;
    into->count += from->count;
}

double moments_absmax(const Moments *m)
{
    return m->count ? fmax(fabs(m->min), fabs(m->max)) : 0;
}

double moments_variance(const Moments *m)
{
    return m->count ? m->m2 / (double)m->count : (double)NAN;
}

double moments_kurtosis(const Moments *m)
{
    return m->count ? (double)m->count * m->m4 / (m->m2 * m->m2) : (double)NAN;
}
