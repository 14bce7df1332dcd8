/* cpu_record.c - statistics of hidden states x [T,C], row by row.
 * figures   ValueRecord of record.h
 * shapes    any T, C; positions < n_positions
 * cost      4TC bytes read; cpu_record_isa.c a value
 * sums      a row in 16 lanes, rows merged in order: bit-equal for any number of
 *           threads and any cut of the rows into calls
 * NaN       counted apart, as infinities are
 * test      tests/kernels/test_record.c */
#include "kernels/cpu/cpu_record.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_carve.h"
#include "kernels/half.h"
#include "kernels/size.h"

const RecordIsa *record_isa(void)
{
    static const RecordIsa *const OF[N_CPU_ISAS] = {&record_plain, &record_avx2,
                                                    &record_avx512};
    return OF[cpu_isa()];
}

static bool any(const uint32_t *x, int64_t n)
{
    uint32_t all = 0;
    for (int64_t i = 0; i < n; i++)
        all |= x[i];
    return all;
}

void hist_flush(Hist *into, uint32_t *from, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        uint32_t *x = from + i * HIST_OCTAVE;
        uint64_t *bins = into->bins + i * HIST_OCTAVE;
        if (!any(x, HIST_OCTAVE))
            continue;
        if (into->used[i])
            for (int64_t j = 0; j < HIST_OCTAVE; j++)
                bins[j] += x[j];
        else
            for (int64_t j = 0; j < HIST_OCTAVE; j++)
                bins[j] = x[j];
        into->used[i] = true;
        memset(x, 0, HIST_OCTAVE * sizeof *x);
    }
}

void absmax_flush(float *into, const uint32_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = f32_from_bits(from[i]);
        into[i] = v > into[i] ? v : into[i];
    }
}

typedef struct {
    const float   *x;          // [T,C]
    int64_t        C;
    const Batch   *batch;
    const int32_t *positions;  // [T]
    ValueRecord   *record;
    Moments       *rows;       // [T]
    RecordTally   *tallies;    // [n_threads]
} RecordCall;

static int64_t sequence_of(const Batch *batch, int64_t t)
{
    int64_t b = 0;
    while (t >= batch->start[b + 1])
        b++;
    return batch->number[b];
}

static void offer_peaks(const RecordCall *c, RecordTally *y, int64_t t)
{
    const float *x = c->x + t * c->C;
    Peak at = {.layer = c->record->layer, .position = c->positions[t],
               .sequence = sequence_of(c->batch, t)};
    float threshold = tally_threshold(y);
    for (int64_t i = 0; i < c->C; i++) {
        if (!(fabsf(x[i]) >= threshold) || isinf(x[i]))
            continue;
        at.value = x[i];
        at.channel = (int32_t)i;
        peaks_add(&y->peaks, &at);
        threshold = tally_threshold(y);
    }
}

static void record_row(const RecordCall *c, const RecordIsa *isa, RecordTally *y, int64_t t)
{
    const float *x = c->x + t * c->C;
    MomentLanes row = {0};
    float max = f32_from_bits(isa->strip(&row, x, c->C, y->hist, y->column));
    moment_lanes_close(&c->rows[t], &row);
    if (max >= tally_threshold(y))
        offer_peaks(c, y, t);
    if (max >= 6)
        for (int64_t i = 0; i < c->C; i++)
            y->over_6[i] += fabsf(x[i]) >= 6 && !isinf(x[i]);
}

static void count_row(const RecordCall *c, RecordTally *y)
{
    y->counted += c->C;
    if (y->counted >= TALLY_FULL) {
#pragma omp critical(record_hist)
        hist_flush(&c->record->hist, y->hist, 0, HIST_OCTAVES);
        y->counted = 0;
    }
}

/* A thread must have more to do than to empty its tally. */
static int threads_for(const Backend *be, int64_t T, int64_t C)
{
    enum { VALUES_A_THREAD = 1 << 16 };
    int64_t n = i64_min(T, T * C / VALUES_A_THREAD);
    return (int)i64_max(1, i64_min(be->n_threads, n));
}

/* In order of rows, then of threads (where order does not matter). */
static void merge(const RecordCall *c, int64_t T, int n_threads)
{
    ValueRecord *r = c->record;
    for (int64_t t = 0; t < T; t++) {
        float v = (float)moments_absmax(&c->rows[t]), *max = &r->position_absmax[c->positions[t]];
        *max = v > *max ? v : *max;
        moments_merge(&r->moments, &c->rows[t]);
    }
    for (int i = 0; i < n_threads; i++) {
        const RecordTally *y = &c->tallies[i];
        hist_flush(&r->hist, y->hist, 0, HIST_OCTAVES);
        absmax_flush(r->channel_absmax, y->column, c->C);
        for (int64_t j = 0; j < c->C; j++)
            r->channel_over_6[j] += y->over_6[j];
        peaks_merge(&r->peaks, &y->peaks);
    }
}

/* Run twice (cpu_carve.h). */
static void place(RecordCall *c, int64_t T, int n_threads, Carve *m)
{
    CARVE(c->rows, m, T);
    for (int i = 0; i < n_threads; i++) {
        CARVE(c->tallies[i].hist, m, HIST_BINS);
        CARVE(c->tallies[i].column, m, c->C);
        CARVE(c->tallies[i].over_6, m, c->C);
    }
}

static void tally_begin(const RecordCall *c, RecordTally *y)
{
    y->floor = peaks_threshold(&c->record->peaks);
    memset(y->hist, 0, HIST_BINS * sizeof *y->hist);
    memset(y->column, 0, (size_t)c->C * sizeof *y->column);
    memset(y->over_6, 0, (size_t)c->C * sizeof *y->over_6);
}

static Status record_all(Backend *be, RecordCall *c, int64_t T, int n_threads)
{
    const RecordIsa *isa = record_isa();
    void *memory;
    Carve m = {0};
    ARENA_NEW(c->tallies, &be->arena, n_threads);
    place(c, T, n_threads, &m);
    if (m.overflow)
        FAIL(ERR_MEMORY, "the record of %lld rows does not fit memory", (long long)T);
    TRY(cpu_scratch(be, &memory, m.used));
    m = (Carve){.base = memory};
    place(c, T, n_threads, &m);
#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(static, 1)
        for (int i = 0; i < n_threads; i++)
            tally_begin(c, &c->tallies[i]);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < T; t++)
{
            RecordTally *y = &c->tallies[omp_get_thread_num()];
            record_row(c, isa, y, t);
            count_row(c, y);
        }
    }
    merge(c, T, n_threads);
    return OK;
}

Status cpu_record(Backend *be, const Tensor *x, const Batch *batch, const int32_t *positions,
                  ValueRecord *r)
{
    int64_t T = x->shape[0];
    RecordCall c = {.x = x->data, .C = x->shape[1], .batch = batch, .positions = positions,
                    .record = r};
    ArenaMark mark = arena_mark(&be->arena);
    Status s = record_all(be, &c, T, threads_for(be, T, c.C));
    arena_rewind(&be->arena, mark);
    return s;
}
