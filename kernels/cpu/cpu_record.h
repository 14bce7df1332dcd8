/* cpu_record.h - recording a strip of values, shared by attention logits and
 * by hidden states, and what a thread gathers until its counts are merged. */
#ifndef DQ_CPU_RECORD_H
#define DQ_CPU_RECORD_H

#include "kernels/record.h"

typedef struct {
    /* The next n values of a row. As moment_lanes_add, bit for bit; counts the
     * finite ones in hist[HIST_BINS] and raises column[0..n), bits of the
     * columns' largest finite magnitudes. Every strip of a row but its last
     * has n % MOMENT_LANES == 0. (Where an earlier one has not, the rest are summed
     * in other lanes, the same for the same cuts.) Returns the bits of the strip's
     * largest finite magnitude. */
    uint32_t (*strip)(MomentLanes *row, const float *x, int64_t n, uint32_t *hist,
                      uint32_t *column);
} RecordIsa;

extern const RecordIsa record_plain, record_avx2, record_avx512;
const RecordIsa *record_isa(void);  // of this machine (cpu_isa)

/* What one thread gathers before it is merged. Counts and maxima have no order,
 * and Peaks has a total one, so that it does not matter which thread saw what. */
typedef struct {
    uint32_t *hist;        // [HIST_BINS] of each map
    int64_t   counted;     // in hist since it was last empty
    uint32_t *column;      // bits of the largest magnitude of each channel or key
    uint32_t *over_6;      // [C], hidden states only
    float     floor;       // nothing below can enter the record's peaks
    Peaks     peaks;
} RecordTally;

/* hist is emptied before a counter can overflow. */
enum { TALLY_FULL = 1 << 30 };

/* Magnitude that a value must reach to be offered to the tally's peaks. */
static inline float tally_threshold(const RecordTally *y)
{
    float own = peaks_threshold(&y->peaks);
    return own > y->floor ? own : y->floor;
}

/* into += from [HIST_BINS], from = 0, of octaves first .. end: disjoint ones may be flushed at
 * once. */
void hist_flush(Hist *into, uint32_t *from, int64_t first, int64_t end);
/* into = max(into, from); both [n], from as bits of magnitudes. */
void absmax_flush(float *into, const uint32_t *from, int64_t n);

#endif
