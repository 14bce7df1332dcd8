/* cuda_record.cu - statistics of hidden states x [T,C].
 * figures   ValueRecord of record.h, each of them the CPU's bit for bit (cpu_record.c)
 * shapes    any T, C; positions < n_positions
 * cost      8TC bytes read on the device; 64T + 8C + 261 KB to the host; 8 operations in double
 *           and one count in shared memory a value: bound by memory where doubles run at half
 *           the rate of floats (A100, H100), by doubles elsewhere
 * launch    rows: 16 threads a row, 16 rows a block; columns: blocks of 256 columns by a strip
 *           of rows, whose height fills the GPU
 * sums      a row in 16 lanes of double, nothing fused; the host closes and merges rows in order
 * NaN       counted apart, as infinities are
 * test      tests/cuda/test_cuda_record.c */
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/half.h"

enum {
    MAGNITUDE = 0x7fffffff,
    INFINITE = 0x7f800000,
    SIX = 0x40c00000,                // bits of 6
    ROWS_A_BLOCK = BLOCK / MOMENT_LANES,
    WINDOW_FIRST = (127 - 20) * 256, // bins of 2^-20 to 2^12 are counted in shared memory
    WINDOW = 32 * 256,
    SLICE = 1 << 30,                 // values of a launch: no count of 32 bits overflows
    MOST_Y = 65535,                  // blocks of a grid in y
};

/* What the values of a row add up to: MomentLanes with its lanes summed. */
typedef struct {
    double   sum[4];
    float    shift, min, max;
    uint32_t absmax;
    int32_t  n_nan, n_pos_inf, n_neg_inf, started;
} RecordRow;

/* --- rows --- */

/* The first finite value of each of a warp's two rows; false without one. Whole warps call. */
static __device__ bool first_finite(float *out, const float *x, int64_t C)
{
    int      lane = threadIdx.x % MOMENT_LANES;
    unsigned half = threadIdx.x % WARP - lane;
    bool     found = false;
    for (int64_t i = 0; __any_sync((unsigned)ALL_LANES, !found && i < C); i += MOMENT_LANES) {
        float    v = i + lane < C ? x[i + lane] : INFINITY;
        unsigned finite = __ballot_sync((unsigned)ALL_LANES, isfinite(v)) >> half & 0xffff;
        float    first = __shfl_sync((unsigned)ALL_LANES, v, finite ? __ffs(finite) - 1 : 0,
                                     MOMENT_LANES);
        if (!found && finite)
            *out = first;
        found = found || finite;
    }
    return found;
}

static __device__ void row_add(RecordRow *r, float x, double shift)
{
    uint32_t u = __float_as_uint(x) & MAGNITUDE;
    bool     finite = u < INFINITE;
    r->n_nan += u > INFINITE;
    r->n_pos_inf += x == INFINITY;
    r->n_neg_inf += x == -INFINITY;
    r->absmax = finite && u > r->absmax ? u : r->absmax;
    r->min = finite && x < r->min ? x : r->min;
    r->max = finite && x > r->max ? x : r->max;
    double t = finite ? __dadd_rn(x, -shift) : 0, t2 = __dmul_rn(t, t);
    r->sum[0] = __dadd_rn(r->sum[0], t);
    r->sum[1] = __dadd_rn(r->sum[1], t2);
    r->sum[2] = __dadd_rn(r->sum[2], __dmul_rn(t2, t));
    r->sum[3] = __dadd_rn(r->sum[3], __dmul_rn(t2, t2));
}

/* The 16 lanes of a row, in the order of sum_lanes in record_moments.c. */
static __device__ void row_join(RecordRow *r)
{
#pragma unroll
    for (int step = MOMENT_LANES / 2; step > 0; step /= 2) {
#pragma unroll
        for (int p = 0; p < 4; p++)
            r->sum[p] = __dadd_rn(r->sum[p],
                                  __shfl_xor_sync((unsigned)ALL_LANES, r->sum[p], step));
        r->n_nan += __shfl_xor_sync((unsigned)ALL_LANES, r->n_nan, step);
        r->n_pos_inf += __shfl_xor_sync((unsigned)ALL_LANES, r->n_pos_inf, step);
        r->n_neg_inf += __shfl_xor_sync((unsigned)ALL_LANES, r->n_neg_inf, step);
        r->absmax = max(r->absmax, __shfl_xor_sync((unsigned)ALL_LANES, r->absmax, step));
        r->min = fminf(r->min, __shfl_xor_sync((unsigned)ALL_LANES, r->min, step));
        r->max = fmaxf(r->max, __shfl_xor_sync((unsigned)ALL_LANES, r->max, step));
    }
}

/* Lane i % 16 adds value i, in order of i: a chain of additions whose bits are the CPU's. Eight
 * loads are on their way at once. */
static __global__ void __launch_bounds__(BLOCK) rows_kernel(RecordRow *rows, const float *x,
                                                            int64_t T, int64_t C)
{
    enum { AHEAD = 8 };
    int64_t   t = grid_index() / MOMENT_LANES;
    int64_t   i = threadIdx.x % MOMENT_LANES, n = t < T ? C : 0;
    RecordRow r = {{0, 0, 0, 0}, 0, INFINITY, -INFINITY, 0, 0, 0, 0, 0};
    x += t * C;
    r.started = first_finite(&r.shift, x, n);
    for (; i + (AHEAD - 1) * MOMENT_LANES < n; i += AHEAD * MOMENT_LANES) {
        float v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            v[j] = x[i + j * MOMENT_LANES];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            row_add(&r, v[j], r.shift);
    }
    for (; i < n; i += MOMENT_LANES)
        row_add(&r, x[i], r.shift);
    __syncwarp();
    row_join(&r);
    if (t < T && threadIdx.x % MOMENT_LANES == 0)
        rows[t] = r;
}

/* --- columns and histogram --- */

typedef struct {
    uint32_t *absmax;  // [C] bits of the largest finite magnitude
    uint32_t *over_6;  // [C]
    uint32_t *hist;    // [HIST_BINS]
} RecordCounts;

/* What a thread has seen of its column. */
typedef struct {
    uint32_t absmax, over_6, zeros;
} Column;

static __device__ void column_add(Column *c, float x, uint32_t *window, uint32_t *hist)
{
    uint32_t u = __float_as_uint(x) & MAGNITUDE, bin = u >> 15, place = bin - WINDOW_FIRST;
    if (u >= INFINITE)
        return;
    c->absmax = max(c->absmax, u);
    c->over_6 += u >= SIX;
    if (place < WINDOW)
        atomicAdd(&window[place], 1u);
    else if (bin == 0)
        c->zeros++;  // of a ReLU: half of all, in one place
    else
        atomicAdd(&hist[bin], 1u);
}

static __global__ void __launch_bounds__(BLOCK) columns_kernel(RecordCounts out, const float *x,
                                                               int64_t T, int64_t C,
                                                               int64_t height)
{
    enum { AHEAD = 8 };
    __shared__ uint32_t window[WINDOW];
    int64_t c = grid_index(), t = blockIdx.y * height;
    int64_t end = c < C ? min(t + height, T) : t;
    Column  seen = {0, 0, 0};
    for (int i = threadIdx.x; i < WINDOW; i += BLOCK)
        window[i] = 0;
    __syncthreads();
    for (; t + AHEAD <= end; t += AHEAD) {
        float v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            v[j] = x[(t + j) * C + c];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            column_add(&seen, v[j], window, out.hist);
    }
    for (; t < end; t++)
        column_add(&seen, x[t * C + c], window, out.hist);
    __syncthreads();
    for (int i = threadIdx.x; i < WINDOW; i += BLOCK)
        if (window[i])
            atomicAdd(&out.hist[WINDOW_FIRST + i], window[i]);
    uint32_t zeros = warp_sum(seen.zeros);
    if (zeros && threadIdx.x % WARP == 0)
        atomicAdd(&out.hist[0], zeros);
    if (seen.absmax)
        atomicMax(&out.absmax[c], seen.absmax);
    if (seen.over_6)
        atomicAdd(&out.over_6[c], seen.over_6);
}

/* --- rows that may hold a peak --- */

/* y [n,C] = x at rows[n] */
static __global__ void take_rows_kernel(float *y, const float *x, const int64_t *rows,
                                        int64_t C)
{
    const float *from = x + rows[blockIdx.x] * C;
    for (int64_t c = blockIdx.y * BLOCK + threadIdx.x; c < C; c += gridDim.y * BLOCK)
        y[blockIdx.x * C + c] = from[c];
}

/* --- one slice of rows --- */

/* n items of the host's that are filled at once. */
template <class T> static Status host_room(Backend *be, T **out, int64_t n)
{
    *out = (T *)arena_raw(&be->arena, n, sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: %lld items of %zu bytes", (long long)n, sizeof **out);
    return OK;
}

typedef struct {
    const float   *x;          // [T,C]
    int64_t        first;      // its first row is that one of the call
    int64_t        T, C;
    const Batch   *batch;
    const int32_t *positions;  // [T]
    ValueRecord   *record;
} RecordSlice;

static Status launch(Backend *be, const RecordSlice *s, RecordRow *rows, RecordCounts out)
{
    enum { LEAST = 32, BLOCKS_EACH = 4 };
    CudaState *st = cuda_state(be);
    int64_t    across = ceil_div(s->C, BLOCK);
    int64_t    height = s->T * across / ((int64_t)BLOCKS_EACH * st->n_multiprocessors);
    height = i64_max(i64_max(height, LEAST), ceil_div(s->T, MOST_Y));
    dim3 grid((unsigned)across, (unsigned)ceil_div(s->T, height));
    columns_kernel<<<grid, BLOCK, 0, st->stream>>>(out, s->x, s->T, s->C, height);
    TRY(cuda_launched("record_columns"));
    rows_kernel<<<(unsigned)ceil_div(s->T, ROWS_A_BLOCK), BLOCK, 0, st->stream>>>(rows, s->x,
                                                                                 s->T, s->C);
    return cuda_launched("record_rows");
}

/* In order of rows; raises *absmax to the bits of the largest magnitude. */
static void merge_rows(const RecordSlice *s, const RecordRow *rows, uint32_t *absmax)
{
    MomentLanes lanes = {};
    Moments     row;
    for (int64_t t = 0; t < s->T; t++) {
        const RecordRow *r = &rows[t];
        float *max = &s->record->position_absmax[s->positions[t]], v = f32_from_bits(r->absmax);
        for (int p = 0; p < 4; p++)
            lanes.sum[p][0] = r->sum[p];
        lanes.shift = r->shift;
        for (int i = 0; i < MOMENT_LANES; i++) {
            lanes.min[i] = r->min;
            lanes.max[i] = r->max;
        }
        lanes.seen = s->C;
        lanes.n_nan = r->n_nan;
        lanes.n_pos_inf = r->n_pos_inf;
        lanes.n_neg_inf = r->n_neg_inf;
        moment_lanes_close(&row, &lanes);
        moments_merge(&s->record->moments, &row);
        *max = v > *max ? v : *max;
        *absmax = r->absmax > *absmax ? r->absmax : *absmax;
    }
}

/* counts: absmax [C], over_6 [C], the first n_bins of hist. */
static void merge_counts(const RecordSlice *s, const uint32_t *counts, int64_t n_bins)
{
    ValueRecord *r = s->record;
    for (int64_t c = 0; c < s->C; c++) {
        float v = f32_from_bits(counts[c]);
        r->channel_absmax[c] = v > r->channel_absmax[c] ? v : r->channel_absmax[c];
        r->channel_over_6[c] += counts[s->C + c];
    }
    for (int64_t i = 0; i < n_bins; i++)
        hist_add(&r->hist, i, counts[2 * s->C + i]);
}

/* --- peaks --- */

/* A row by what orders it among peaks: its largest magnitude, then its place. */
typedef struct {
    uint32_t absmax;
    int32_t  position;
    int64_t  sequence, row;
} PeakRow;

static int64_t sequence_of(const Batch *batch, int64_t t)
{
    int64_t b = 0;
    while (t >= batch->start[b + 1])
        b++;
    return batch->number[b];
}

static int by_peak(const void *pa, const void *pb)
{
    const PeakRow *a = (const PeakRow *)pa, *b = (const PeakRow *)pb;
    if (a->absmax != b->absmax)
        return a->absmax > b->absmax ? -1 : 1;
    if (a->sequence != b->sequence)
        return a->sequence < b->sequence ? -1 : 1;
    return (a->position > b->position) - (a->position < b->position);
}

/* All rows that may hold a peak, first ones first: of N_PEAKS rows each has a value that
 * stands before all of the rows after them. Rows of one place are not told apart. */
static int64_t peak_rows(const RecordSlice *s, const RecordRow *rows, PeakRow *out)
{
    uint32_t floor = f32_bits(peaks_threshold(&s->record->peaks));
    int64_t  n = 0, m;
    for (int64_t t = 0; t < s->T; t++)
        if (rows[t].started && rows[t].absmax >= floor)
            out[n++] = PeakRow{rows[t].absmax, s->positions[t],
                               sequence_of(s->batch, s->first + t), t};
    qsort(out, (size_t)n, sizeof *out, by_peak);
    for (m = i64_min(n, N_PEAKS); m < n && by_peak(&out[m - 1], &out[m]) == 0; m++)
        ;
    return m;
}

static void offer(ValueRecord *r, const PeakRow *row, const float *x)
{
    Peak at = {};
    at.layer = r->layer;
    at.position = row->position;
    at.sequence = row->sequence;
    for (int64_t c = 0; c < r->n_channels; c++) {
        if (!(fabsf(x[c]) >= peaks_threshold(&r->peaks)) || isinf(x[c]))
            continue;
        at.value = x[c];
        at.channel = (int32_t)c;
        peaks_add(&r->peaks, &at);
    }
}

static Status add_peaks(Backend *be, const RecordSlice *s, const RecordRow *rows)
{
    PeakRow *chosen;
    int64_t *numbers;
    float   *x;
    void    *taken, *sent;
    TRY(host_room(be, &chosen, s->T));
    int64_t n = peak_rows(s, rows, chosen);
    if (n == 0)
        return OK;
    TRY(host_room(be, &numbers, n));
    TRY(host_room(be, &x, n * s->C));
    for (int64_t i = 0; i < n; i++)
        numbers[i] = chosen[i].row;
    TRY(cuda_sent(be, &sent, numbers, (size_t)n * sizeof *numbers));
    TRY(cuda_scratch(be, &taken, (size_t)(n * s->C) * sizeof(float)));
    dim3 grid((unsigned)n, (unsigned)i64_min(ceil_div(s->C, BLOCK), MOST_Y));
    take_rows_kernel<<<grid, BLOCK, 0, cuda_state(be)->stream>>>((float *)taken, s->x,
                                                                 (const int64_t *)sent, s->C);
    TRY(cuda_launched("record_take_rows"));
    TRY(cuda_fetch(be, x, taken, (size_t)(n * s->C) * sizeof *x));
    for (int64_t i = 0; i < n; i++)
        offer(s->record, &chosen[i], x + i * s->C);
    return OK;
}

static Status record_slice(Backend *be, const RecordSlice *s)
{
    RecordRow *rows;
    uint32_t  *counts, absmax = 0;
    void      *device_rows, *device_counts;
    size_t     n_counts = (size_t)(2 * s->C + HIST_BINS);
    TRY(host_room(be, &rows, s->T));
    TRY(host_room(be, &counts, (int64_t)n_counts));
    TRY(cuda_scratch(be, &device_rows, (size_t)s->T * sizeof *rows));
    TRY(cuda_scratch(be, &device_counts, n_counts * sizeof *counts));
    TRY(cuda_zero(be, device_counts, n_counts * sizeof *counts));
    uint32_t *columns = (uint32_t *)device_counts;
    TRY(launch(be, s, (RecordRow *)device_rows,
               RecordCounts{columns, columns + s->C, columns + 2 * s->C}));
    TRY(cuda_fetch(be, rows, device_rows, (size_t)s->T * sizeof *rows));
    merge_rows(s, rows, &absmax);
    int64_t n_bins = hist_bin(absmax) + 1;
    TRY(cuda_fetch(be, counts, device_counts, (size_t)(2 * s->C + n_bins) * sizeof *counts));
    merge_counts(s, counts, n_bins);
    return add_peaks(be, s, rows);
}

Status cuda_record(Backend *be, const Tensor *x, const Batch *batch, const int32_t *positions,
                   ValueRecord *r)
{
    int64_t T = x->shape[0], C = x->shape[1], step = i64_max(1, SLICE / i64_max(C, 1));
    Status  status = OK;
    TRY(cuda_begin(be, NULL));
    for (int64_t t = 0; t < T && C > 0 && status == OK; t += step) {
        RecordSlice s = {(const float *)x->data + t * C, t, i64_min(step, T - t), C, batch,
                         positions + t, r};
        ArenaMark mark = arena_mark(&be->arena);
        status = record_slice(be, &s);
        arena_rewind(&be->arena, mark);
    }
    return status;
}
