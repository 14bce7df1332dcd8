/* record.h - statistics of values as they stream by.
 * Plain structs that a kernel fills and that merge exactly: the same values
 * give the same figures whatever the threads and tiles. NaN and infinities
 * are counted apart and kept out of everything else. */
#ifndef DQ_RECORD_H
#define DQ_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"

/* Central moments about the mean, merged pairwise (Chan et al. 1983,
 * Pebay 2008), in double. */
typedef struct {
    int64_t count;                // finite values only, as all below
    int64_t n_nan, n_pos_inf, n_neg_inf;
    double  min, max;             // +inf and -inf while count == 0
    double  mean, m2, m3, m4;     // m2 = sum (x - mean)^2, and so on
} Moments;

void   moments_init(Moments *m);
/* Adds x[0..n), n >= 0, taken at once: sums in a fixed order of 16 lanes about
 * the first finite value, then one merge. Not associative with other cuts:
 * callers add whole rows. Large magnitudes up to FLT_MAX stay finite. */
void   moments_add(Moments *m, const float *x, int64_t n);
void   moments_merge(Moments *into, const Moments *from);
double moments_absmax(const Moments *m);    // 0 while count == 0
double moments_variance(const Moments *m);  // m2 / count; NaN while count == 0
double moments_kurtosis(const Moments *m);  // count * m4 / m2^2 (normal: 3)

/* One row of values on its way into Moments, for kernels that meet it in
 * pieces. Value i of the row is summed in lane i % 16, in order of i; so the
 * pieces may be cut anywhere, but must come in order. {0} has seen nothing. */
enum { MOMENT_LANES = 16 };

typedef struct {
    double  sum[4][MOMENT_LANES];  // of (x - shift)^p, p = 1 .. 4, finite x
    float   min[MOMENT_LANES], max[MOMENT_LANES];  // once started; at first the shift
    float   shift;                 // the first finite value
    bool    started;               // a finite value has come
    int64_t seen;                  // values so far: the next one's index
    int64_t n_nan, n_pos_inf, n_neg_inf;
} MomentLanes;

/* x is the first finite value, yet to be added. */
void moment_lanes_start(MomentLanes *row, float x);
void moment_lanes_add(MomentLanes *row, const float *x, int64_t n);
/* The row as Moments about its mean, to be merged. */
void moment_lanes_close(Moments *m, const MomentLanes *row);

/* Histogram of magnitudes. A bin is |x| without its 15 lowest bits: 256 bins
 * an octave, so the middle of a bin is within 0.2 % of all its values. The
 * bins cover all finite f32; bin 0 holds zero and what is below 2^-134. */
enum {
    HIST_OCTAVE = 256,
    HIST_OCTAVES = 0xff,                       // exponents of finite f32
    HIST_BINS = HIST_OCTAVE * HIST_OCTAVES     // 65280: the bits of infinity, >> 15
};

static inline int32_t hist_bin(uint32_t f32_bits_of_x)
{
    return (int32_t)((f32_bits_of_x & 0x7fffffffu) >> 15);
}
double hist_value(int64_t bin);  // geometric middle of a bin; 0 for bin 0

/* Few octaves are ever used. The others' memory is not even looked at, and of one that comes
 * into use every bin is written first: a model has hundreds of histograms, and each page of them
 * costs the system's time once when it is read and once more when it is written. */
typedef struct {
    uint64_t *bins;                // [HIST_BINS]
    bool      used[HIST_OCTAVES];  // false: the octave's bins are 0
} Hist;

MUST_USE Status hist_init(Hist *h, Arena *a);
void    hist_add(Hist *h, int64_t bin, uint64_t n);
void    hist_merge(Hist *into, const Hist *from);
/* The first bin from `bin` on that is not 0; HIST_BINS where there is none. */
int64_t hist_next(const Hist *h, int64_t bin);
bool    hist_equal(const Hist *a, const Hist *b);
/* Value at rank ceil(q * n) of the n values counted, q in [0,1]. NaN if n = 0. */
double  hist_quantile(const Hist *h, double q);

/* Where a value stood. Unused places are 0. */
typedef struct {
    float   value;     // with its sign
    int32_t layer;
    int32_t head;      // attention logits: output head
    int32_t map;       // attention logits: 0 signal, 1 noise
    int32_t channel;   // hidden states
    int32_t position;  // in its sequence: query position, or the token's
    int32_t key;       // attention logits: key position
    int64_t sequence;  // number of the window in the text
} Peak;

enum { N_PEAKS = 100 };

/* The N_PEAKS largest magnitudes, largest first; equal magnitudes in order of
 * (sequence, layer, head, map, position, key, channel), smallest first, so that
 * the list does not depend on the order of arrival. */
typedef struct {
    int  n;
    Peak at[N_PEAKS];
} Peaks;

/* Magnitude below which (strictly) nothing can enter; 0 while not full. */
float peaks_threshold(const Peaks *p);
/* peak->value is finite. */
void  peaks_add(Peaks *p, const Peak *peak);
void  peaks_merge(Peaks *into, const Peaks *from);

/* One tap of values x [T,C] in one layer: hidden states, inputs of a linear. */
typedef struct {
    int32_t   layer;
    int64_t   n_channels;          // C
    int64_t   n_positions;         // longest sequence that may come
    Moments   moments;
    Hist      hist;
    float    *channel_absmax;      // [C]
    uint64_t *channel_over_6;      // [C] values with |x| >= 6 (LLM.int8)
    float    *position_absmax;     // [n_positions]
    Peaks     peaks;
} ValueRecord;

/* The attention logits of one layer. A noise map that several heads share is counted once,
 * as map 1 of the first of them; the others' are empty. */
typedef struct {
    int32_t   layer;
    int64_t   n_heads, n_maps;     // H, M
    int64_t   n_positions;
    Moments  *moments;             // [H,M]
    Hist     *hist;                // [M]
    float    *query_absmax;        // [M,n_positions]
    float    *key_absmax;          // [M,n_positions]
    Peaks     peaks;
} LogitRecord;

/* Attention weights of one layer, measured on the rows that Attention.share_rows
 * names, else on the query positions p with p % SHARE_STRIDE == SHARE_STRIDE - 1 (a
 * map needs its final sum first, so these rows are computed a second time). Sums
 * over rows; divide by rows. */
enum { SHARE_STRIDE = 16 };

typedef struct {
    int64_t rows;
    int64_t weights;        // allowed entries in those rows
    int64_t span_rows;      // rows with a marked span before them, within reach or not
    double  entropy[2];     // of map 1, map 2, in nats
    double  first[2];       // weight on position 0; out of reach: 0
    double  span[2];        // weight on the marked span, over span_rows
    double  diff_first;     // of A1 - lambda A2 (of A1 where there is one map)
    double  diff_span;
    double  diff_abs;       // sum of |A1 - lambda A2|
    double  diff_abs_first; // what of it is on position 0
    double  diff_abs_span;  // and on the marked span
    double  row_sum_error;  // largest |row sum - (1 - lambda)|
    double  cancelled;      // sum of min(A1, lambda A2): mass taken off map 1
    int64_t negative;       // entries with A1 < lambda A2
} ShareRecord;

MUST_USE Status value_record_init(ValueRecord *r, Arena *a, int32_t layer,
                                  int64_t n_channels, int64_t n_positions);
MUST_USE Status logit_record_init(LogitRecord *r, Arena *a, int32_t layer,
                                  int64_t n_heads, int64_t n_maps,
                                  int64_t n_positions);
/* Bytes that these take from the arena. */
size_t value_record_bytes(int64_t n_channels, int64_t n_positions);
size_t logit_record_bytes(int64_t n_heads, int64_t n_maps, int64_t n_positions);
/* Adds `from` to `into`; shapes must be equal (CHECK). */
void value_record_merge(ValueRecord *into, const ValueRecord *from);
void logit_record_merge(LogitRecord *into, const LogitRecord *from);
void share_record_merge(ShareRecord *into, const ShareRecord *from);

#endif
