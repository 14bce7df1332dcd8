/* record.c - making and merging the records of a tap. */
#include "kernels/record.h"

#include <math.h>

Status value_record_init(ValueRecord *r, Arena *a, int32_t layer, int64_t n_channels,
                         int64_t n_positions)
{
    *r = (ValueRecord){.layer = layer, .n_channels = n_channels, .n_positions = n_positions};
    moments_init(&r->moments);
    TRY(hist_init(&r->hist, a));
    ARENA_NEW(r->channel_absmax, a, n_channels);
    ARENA_NEW(r->channel_over_6, a, n_channels);
    ARENA_NEW(r->position_absmax, a, n_positions);
    return OK;
}

Status logit_record_init(LogitRecord *r, Arena *a, int32_t layer, int64_t n_heads,
                         int64_t n_maps, int64_t n_positions)
{
    *r = (LogitRecord){.layer = layer, .n_heads = n_heads, .n_maps = n_maps,
                       .n_positions = n_positions};
    ARENA_NEW(r->moments, a, n_heads * n_maps);
    for (int64_t i = 0; i < n_heads * n_maps; i++)
        moments_init(&r->moments[i]);
    ARENA_NEW(r->hist, a, n_maps);
    for (int64_t m = 0; m < n_maps; m++)
        TRY(hist_init(&r->hist[m], a));
    ARENA_NEW(r->query_absmax, a, n_maps * n_positions);
    ARENA_NEW(r->key_absmax, a, n_maps * n_positions);
    return OK;
}

/* What of a histogram is used: the least of n magnitudes is about 1 / n of the largest. */
static size_t hist_bytes(double n)
{
    return (size_t)fmax(1, ceil(log2(n))) * HIST_OCTAVE * sizeof(uint64_t);
}

size_t value_record_bytes(int64_t n_channels, int64_t n_positions)
{
    const ValueRecord *r = NULL;
    return hist_bytes((double)n_channels * (double)n_positions) +
           (size_t)n_channels * (sizeof *r->channel_absmax + sizeof *r->channel_over_6) +
           (size_t)n_positions * sizeof *r->position_absmax;
}

size_t logit_record_bytes(int64_t n_heads, int64_t n_maps, int64_t n_positions)
{
    const LogitRecord *r = NULL;
    double logits = (double)n_heads * (double)n_positions * (double)n_positions / 2;
    return (size_t)(n_heads * n_maps) * sizeof *r->moments +
           (size_t)n_maps * (sizeof *r->hist + hist_bytes(logits)) +
           (size_t)(n_maps * n_positions) * (sizeof *r->query_absmax + sizeof *r->key_absmax);
}

static void add_counts(uint64_t *into, const uint64_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        into[i] += from[i];
}

static void take_larger(float *into, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        into[i] = from[i] > into[i] ? from[i] : into[i];
}

void value_record_merge(ValueRecord *into, const ValueRecord *from)
{
    CHECK(into->layer == from->layer && into->n_channels == from->n_channels);
    CHECK(into->n_positions == from->n_positions);
    moments_merge(&into->moments, &from->moments);
    hist_merge(&into->hist, &from->hist);
    take_larger(into->channel_absmax, from->channel_absmax, from->n_channels);
    add_counts(into->channel_over_6, from->channel_over_6, from->n_channels);
    take_larger(into->position_absmax, from->position_absmax, from->n_positions);
    peaks_merge(&into->peaks, &from->peaks);
}

void logit_record_merge(LogitRecord *into, const LogitRecord *from)
{
    CHECK(into->layer == from->layer && into->n_heads == from->n_heads);
    CHECK(into->n_maps == from->n_maps && into->n_positions == from->n_positions);
    for (int64_t i = 0; i < from->n_heads * from->n_maps; i++)
        moments_merge(&into->moments[i], &from->moments[i]);
    for (int64_t m = 0; m < from->n_maps; m++)
        hist_merge(&into->hist[m], &from->hist[m]);
    take_larger(into->query_absmax, from->query_absmax, from->n_maps * from->n_positions);
    take_larger(into->key_absmax, from->key_absmax, from->n_maps * from->n_positions);
    peaks_merge(&into->peaks, &from->peaks);
}

/* The larger; NaN if either is: fmax would drop it. */
static double larger_or_nan(double a, double b)
{
    return b > a || isnan(b) ? b : a;
}

void share_record_merge(ShareRecord *into, const ShareRecord *from)
{
    into->rows += from->rows;
    into->weights += from->weights;
    into->span_rows += from->span_rows;
    for (int m = 0; m < 2; m++) {
        into->entropy[m] += from->entropy[m];
        into->first[m] += from->first[m];
        into->span[m] += from->span[m];
    }
    into->diff_first += from->diff_first;
    into->diff_span += from->diff_span;
    into->diff_abs += from->diff_abs;
    into->diff_abs_first += from->diff_abs_first;
    into->diff_abs_span += from->diff_abs_span;
    into->row_sum_error = larger_or_nan(into->row_sum_error, from->row_sum_error);
    into->cancelled += from->cancelled;
    into->negative += from->negative;
}
