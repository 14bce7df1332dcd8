/* cuda_attn_record.cu - what the tiles of attention found, into a LogitRecord.
 * figures   record.h; counts, extremes and peaks are those of the CPU for the same logits
 * peaks     Rows in the order of their largest magnitude (ties: sequence number, head, map,
 *           position, as peaks are ordered): a logit of row 101 has the largest of each of 100
 *           rows before it in the order of peaks, so the first 100 rows hold the call's first
 *           100. Of them only such count that reach the record's threshold. The GPU lists rows
 *           by that threshold alone; where that leaves too many (the first call of a layer) the
 *           host goes through all of their maxima. Then the logits of the chosen rows are
 *           worked out again and looked at one by one. Numbers of sequences differ
 * shapes    any; [T,B,R] rows
 * cost      92 bytes a row read on the device; to the host 0.5 MB of counts a map, 80 bytes a
 *           sequence and map of a block, 64 KB of rows; then 4S bytes a chosen row
 * launch    a warp a query; a block of 256 a sequence and map of a block
 * sums      rows of a sequence strided over 256 threads, then a tree; sequences in order: a
 *           record does not depend on how sequences are batched
 * waits     two; three where all maxima are looked at
 * test      tests/cuda/test_cuda_attn_record.c */
#include <math.h>

#include "kernels/cuda/cuda_attn.cuh"
#include "kernels/cuda/cuda_moments.cuh"
#include "kernels/half.h"

enum { LISTED = 4096 };               // rows that the GPU can name
static const uint32_t EMPTY = ~0u;    // as row_absmax: no finite value in the row

typedef struct {
    int64_t  row;                     // of [T,B,R]
    uint32_t absmax;
} ListedRow;

/* What the host wants to know of a call, one piece of memory on either side. */
typedef struct {
    uint64_t  *n_listed;              // of those that should be, LISTED or more
    ListedRow *listed;                // [LISTED]
    Moments   *moments;               // [n_sequences,B,R]
    uint64_t  *hist;                  // [M,HIST_BINS]
    uint32_t  *query_absmax;          // [M,longest]
    uint32_t  *key_absmax;            // [M,longest]
} Findings;

static size_t findings_bytes(const AttnCall *c)
{
    size_t maps = (size_t)c->n_sequences * (size_t)(c->n_blocks * c->n_rows);
    size_t positions = (size_t)c->n_maps * (size_t)c->longest;
    return sizeof(uint64_t) + LISTED * sizeof(ListedRow) + maps * sizeof(Moments) +
           (size_t)c->n_maps * HIST_BINS * sizeof(uint64_t) + 2 * positions * sizeof(uint32_t);
}

static Findings place(void *base, const AttnCall *c)
{
    Findings f;
    f.n_listed = (uint64_t *)base;
    f.listed = (ListedRow *)(f.n_listed + 1);
    f.moments = (Moments *)(f.listed + LISTED);
    f.hist = (uint64_t *)(f.moments + (int64_t)c->n_sequences * c->n_blocks * c->n_rows);
    f.query_absmax = (uint32_t *)(f.hist + (int64_t)c->n_maps * HIST_BINS);
    f.key_absmax = f.query_absmax + (int64_t)c->n_maps * c->longest;
    return f;
}

/* --- on the device --- */

/* The sequence that query t of all is of. */
static __device__ int32_t sequence_at(const AttnCall &c, int64_t t)
{
    int32_t low = 0, high = c.n_sequences;  // start[low] <= t < start[high]
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (c.start[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __device__ int32_t position_at(const AttnCall &c, int64_t t)
{
    int32_t b = sequence_at(c, t);
    return c.key_start[b + 1] - c.key_start[b] - c.start[b + 1] + (int32_t)t;
}

/* Rows from `floor` on into the list, in any order; maxima of query positions; rows without
 * a value are marked EMPTY. */
static __global__ void __launch_bounds__(BLOCK) rows_kernel(AttnCall c, Findings f,
                                                            uint32_t floor)
{
    int64_t  t = grid_index() / WARP;
    int32_t  maps = c.n_blocks * c.n_rows;
    uint32_t max[2] = {0, 0};
    for (int32_t j = threadIdx.x % WARP; t < c.n_queries && j < maps; j += WARP) {
        int64_t  row = t * maps + j;
        uint32_t absmax = c.row_absmax[row];
        int32_t  map = attn_map(c, j % c.n_rows);
        if (absmax == 0 && c.moments[row].count == 0) {
            c.row_absmax[row] = EMPTY;
            continue;
        }
        max[0] = map == 0 && absmax > max[0] ? absmax : max[0];
        max[1] = map == 1 && absmax > max[1] ? absmax : max[1];
        if (absmax < floor)
            continue;
        unsigned long long at = atomicAdd((unsigned long long *)f.n_listed, 1ull);
        if (at < LISTED) {
            ListedRow listed = {row, absmax};
            f.listed[at] = listed;
        }
    }
    __syncwarp();
    for (int32_t m = 0; m < c.n_maps; m++) {
        uint32_t top = warp_max(m == 0 ? max[0] : max[1]);
        if (threadIdx.x % WARP == 0 && top)
            atomicMax(&f.query_absmax[(int64_t)m * c.longest + position_at(c, t)], top);
    }
}

/* Block x: one map of a block of heads; y: a sequence. */
static __global__ void __launch_bounds__(BLOCK, 2) moments_kernel(AttnCall c, Moments *out)
{
    __shared__ Moments part[BLOCK];
    int64_t maps = (int64_t)c.n_blocks * c.n_rows, i = threadIdx.x;
    for (int64_t b = blockIdx.y; b < c.n_sequences; b += gridDim.y) {
        Moments sum = moments_none();
        for (int64_t t = c.start[b] + i; t < c.start[b + 1]; t += BLOCK) {
            Moments row = c.moments[t * maps + blockIdx.x];
            moments_join(&sum, &row);
        }
        part[i] = sum;
        __syncthreads();
        for (int half = BLOCK / 2; half > 0; half /= 2) {
            if (i < half)
                moments_join(&part[i], &part[i + half]);
            __syncthreads();
        }
        if (i == 0)
            out[b * maps + blockIdx.x] = part[0];
        __syncthreads();
    }
}

static Status copy(Backend *be, void *to, const void *from, size_t bytes)
{
    CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                             cuda_state(be)->stream));
    return OK;
}

static Status gather(Backend *be, const AttnCall *c, const Findings *f, uint32_t floor)
{
    enum { MOST_Y = 65535 };
    cudaStream_t stream = cuda_state(be)->stream;
    size_t bins = (size_t)c->n_maps * HIST_BINS, positions = (size_t)(c->n_maps * c->longest);
    dim3 grid((unsigned)(c->n_blocks * c->n_rows), (unsigned)i64_min(c->n_sequences, MOST_Y));
    TRY(cuda_zero(be, f->n_listed, sizeof *f->n_listed));
    TRY(cuda_zero(be, f->listed, LISTED * sizeof *f->listed));  // all of it goes to the host
    TRY(cuda_zero(be, f->query_absmax, positions * sizeof *f->query_absmax));
    rows_kernel<<<(unsigned)ceil_div(c->n_queries, BLOCK_WARPS), BLOCK, 0, stream>>>(*c, *f,
                                                                                    floor);
    TRY(cuda_launched("attention: maxima of rows"));
    moments_kernel<<<grid, BLOCK, 0, stream>>>(*c, f->moments);
    TRY(cuda_launched("attention: moments"));
    TRY(copy(be, f->hist, c->hist, bins * sizeof *c->hist));
    return copy(be, f->key_absmax, c->key_absmax, positions * sizeof *c->key_absmax);
}

/* --- on the host --- */

/* n items of the host's that are filled at once. */
template <class T> static Status host_room(Backend *be, T **out, int64_t n)
{
    *out = (T *)arena_raw(&be->arena, n, sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: %lld items of %zu bytes", (long long)n, sizeof **out);
    return OK;
}

static void raise_absmax(float *max, const uint32_t *bits, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = f32_from_bits(bits[i]);
        max[i] = v > max[i] ? v : max[i];
    }
}

static int32_t host_head(const AttnCall *c, int32_t j)
{
    int32_t r = j % c->n_rows;
    return j / c->n_rows * c->n_signals + (r == c->n_signals ? 0 : r);
}

static int32_t host_map(const AttnCall *c, int32_t j)
{
    return j % c->n_rows == c->n_signals;
}

static void merge(LogitRecord *r, const AttnCall *c, const Findings *f)
{
    int32_t maps = c->n_blocks * c->n_rows;
    for (int64_t i = 0; i < r->n_maps * HIST_BINS; i++)
        hist_add(&r->hist[i / HIST_BINS], i % HIST_BINS, f->hist[i]);
    for (int64_t m = 0; m < r->n_maps; m++) {
        raise_absmax(r->query_absmax + m * r->n_positions, f->query_absmax + m * c->longest,
                     c->longest);
        raise_absmax(r->key_absmax + m * r->n_positions, f->key_absmax + m * c->longest,
                     c->longest);
    }
    for (int64_t b = 0; b < c->n_sequences; b++)
        for (int32_t j = 0; j < maps; j++)
            moments_merge(&r->moments[host_head(c, j) * r->n_maps + host_map(c, j)],
                          &f->moments[b * maps + j]);
}

/* --- peaks --- */

/* First rows first: each a Peak of its largest magnitude; channel is the query's number. */
typedef struct {
    const Attention *a;
    const AttnCall  *c;
    Peaks            rows;
} Choice;

static const int32_t *key_start_of(const Attention *a)
{
    return a->key_start ? a->key_start : a->batch.start;
}

static int64_t sequence_of(const Attention *a, int32_t t)
{
    int64_t b = 0;
    while (t >= a->batch.start[b + 1])
        b++;
    return b;
}

static int32_t position_of(const Attention *a, int64_t b, int32_t t)
{
    const int32_t *keys = key_start_of(a);
    return keys[b + 1] - keys[b] - a->batch.start[b + 1] + t;
}

static void offer_row(Choice *choice, int64_t row, uint32_t absmax)
{
    int32_t maps = choice->c->n_blocks * choice->c->n_rows, j = (int32_t)(row % maps);
    int32_t t = (int32_t)(row / maps);
    Peak    at = {};
    at.value = f32_from_bits(absmax);
    if (!(at.value >= peaks_threshold(&choice->rows)))
        return;
    int64_t b = sequence_of(choice->a, t);
    at.sequence = choice->a->batch.number[b];
    at.head = host_head(choice->c, j);
    at.map = host_map(choice->c, j);
    at.position = position_of(choice->a, b, t);
    at.channel = t;
    peaks_add(&choice->rows, &at);
}

static Status choose_among_all(Backend *be, Choice *choice, uint32_t floor)
{
    const AttnCall *c = choice->c;
    int64_t   n = c->n_queries * c->n_blocks * c->n_rows;
    uint32_t *absmax;
    TRY(host_room(be, &absmax, n));
    TRY(cuda_fetch(be, absmax, c->row_absmax, (size_t)n * sizeof *absmax));
    for (int64_t i = 0; i < n; i++)
        if (absmax[i] != EMPTY && absmax[i] >= floor)
            offer_row(choice, i, absmax[i]);
    return OK;
}

static Status choose(Backend *be, Choice *choice, const Findings *f, uint32_t floor)
{
    if (*f->n_listed > LISTED)
        return choose_among_all(be, choice, floor);
    for (uint64_t i = 0; i < *f->n_listed; i++)
        offer_row(choice, f->listed[i].row, f->listed[i].absmax);
    return OK;
}

static AttnRow chosen_row(const Choice *choice, const Peak *at)
{
    int32_t signals = choice->c->n_signals;
    AttnRow row = {(int32_t)sequence_of(choice->a, at->channel), at->channel, at->position,
                   at->head / signals, at->map ? signals : at->head % signals};
    return row;
}

/* x: all logits of the row from key 0 on. */
static void offer_logits(LogitRecord *r, const AttnCall *c, Peak at, const float *x)
{
    at.layer = r->layer;
    at.channel = 0;
    at.key = (int32_t)i64_max(at.position + 1 - c->reach, 0);
    for (; at.key <= at.position; at.key++) {
        at.value = x[at.key];
        if (fabsf(at.value) >= peaks_threshold(&r->peaks) && !isinf(at.value))
            peaks_add(&r->peaks, &at);
    }
}

static Status add_peaks(Backend *be, const Choice *choice, AttnRows *work_out)
{
    const AttnCall *c = choice->c;
    const Peaks    *p = &choice->rows;
    AttnRow rows[N_PEAKS];
    void   *sent, *worked_out;
    float  *x;
    size_t  bytes = (size_t)p->n * (size_t)c->longest * sizeof *x;
    if (p->n == 0)
        return OK;
    for (int i = 0; i < p->n; i++)
        rows[i] = chosen_row(choice, &p->at[i]);
    TRY(host_room(be, &x, p->n * (int64_t)c->longest));
    TRY(cuda_sent(be, &sent, rows, (size_t)p->n * sizeof *rows));
    TRY(cuda_scratch(be, &worked_out, bytes));
    TRY(work_out(be, choice->a, c, (const AttnRow *)sent, p->n, (float *)worked_out,
                 c->longest));
    TRY(cuda_fetch(be, x, worked_out, bytes));
    for (int i = 0; i < p->n; i++)
        offer_logits(choice->a->record, c, p->at[i], x + i * (int64_t)c->longest);
    return OK;
}

static Status record(Backend *be, const Attention *a, const AttnCall *c, AttnRows *work_out)
{
    Choice   choice = {a, c, {}};
    void    *device;
    char    *host;
    uint32_t floor = f32_bits(peaks_threshold(&a->record->peaks));
    size_t   bytes = findings_bytes(c);
    TRY(host_room(be, &host, (int64_t)bytes));
    TRY(cuda_scratch(be, &device, bytes));
    Findings there = place(device, c), here = place(host, c);
    TRY(gather(be, c, &there, floor));
    TRY(cuda_fetch(be, host, device, bytes));
    merge(a->record, c, &here);
    TRY(choose(be, &choice, &here, floor));
    return add_peaks(be, &choice, work_out);
}

Status cuda_attn_record(Backend *be, const Attention *a, const AttnCall *c, AttnRows *rows)
{
    ArenaMark mark = arena_mark(&be->arena);
    Status    s = c->n_queries ? record(be, a, c, rows) : OK;
    arena_rewind(&be->arena, mark);
    return s;
}
