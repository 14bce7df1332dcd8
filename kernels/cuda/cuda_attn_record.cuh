/* cuda_attn_record.cuh - statistics of logits inside a tile, for all kernels of attention.
 *
 * How a kernel records:
 *   TileRecord rec = record_open(shared, rows, call);   // shared: record_bytes(rows, n_maps)
 *   __syncthreads();
 *   for each tile of keys, each map: record_strips<...>(&rec, map, row, step, key, x, allowed)
 *   __syncthreads();
 *   record_flush(&rec);
 *   each row, by one thread: record_close(&rec, row, seen, &moments, &absmax)
 *
 * figures   record.h, of logits after the scale, before quantization, allowed entries only
 * rows      0 .. rows - 1 in the order the kernel likes; its own warp's for all keys: LANES
 *           neighbouring lanes hold values of the same rows, and the lanes of a warp that are
 *           a multiple of LANES apart values of the same keys
 * cost      about 20 instructions a logit, one of them an increment in shared memory
 * sums      powers of x - shift, the shift near the mean of the row's first values (of a
 *           constant row its value), in f32 over a call's values of a row, then in double.
 *           Each call's sums are right within N / 2 ulp of f32. From powers about the shift
 *           to those about the mean at most a factor of n / k cancels, k values in the first
 *           call: the mean of any k members is within m2 / k of the mean. A row's first call
 *           and values for which f32 is too narrow are summed in double
 * counts    bins of magnitudes 2^-9 .. 2^7 in shared memory, 32 bits: fewer than 2^32 logits
 *           a map and tile; others in global memory
 * order     integers and maxima have none; a row's sums run in order of its calls
 * NaN       and infinities are counted apart
 * test      tests/cuda/test_cuda_attn_strips.cu, test_cuda_attn_record.c */
#ifndef DQ_CUDA_ATTN_RECORD_CUH
#define DQ_CUDA_ATTN_RECORD_CUH

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_moments.cuh"

enum {
    RECORD_FIRST = (127 - 9) << 8,  // bin of 2^-9
    RECORD_WINDOW = 16 << 8,        // bins in shared memory: 16 octaves
    RECORD_INFINITE = 0x7f800000,
    RECORD_MAGNITUDE = 0x7fffffff
};

/* A row so far. 14 words: 16 rows side by side lie in different banks. */
typedef struct {
    double   sum[4];           // of (x - shift)^p
    float    shift, min, max;  // shift NaN: nothing finite yet
    uint32_t others[3];        // of NaN, +inf, -inf
} RowTally;

enum { OF_NAN, OF_POS_INF, OF_NEG_INF };  // of others

/* What a block has found so far. */
typedef struct {
    RowTally *row;             // [rows] shared
    uint32_t *window;          // [M,RECORD_WINDOW] shared
    uint64_t *hist;            // [M,HIST_BINS]
    uint32_t *key_absmax;      // [M,longest]
    int32_t   longest, n_maps;
} TileRecord;

/* Shared memory, aligned to 8. */
__host__ __device__ inline size_t record_bytes(int32_t rows, int32_t n_maps)
{
    return (size_t)rows * sizeof(RowTally) +
           (size_t)n_maps * RECORD_WINDOW * sizeof(uint32_t);
}

/* Of a block of one dimension, all of whose threads call; a barrier must follow. */
__device__ inline TileRecord record_open(void *shared, int32_t rows, const AttnCall &c)
{
    const RowTally none = {{0, 0, 0, 0}, CUDART_NAN_F, CUDART_INF_F, -CUDART_INF_F, {0, 0, 0}};
    TileRecord     rec;
    rec.row = (RowTally *)shared;
    rec.window = (uint32_t *)(rec.row + rows);
    rec.hist = c.hist;
    rec.key_absmax = c.key_absmax;
    rec.longest = c.longest;
    rec.n_maps = c.n_maps;
    for (int32_t i = threadIdx.x; i < rows; i += blockDim.x)
        rec.row[i] = none;
    for (int32_t i = threadIdx.x; i < c.n_maps * RECORD_WINDOW; i += blockDim.x)
        rec.window[i] = 0;
    return rec;
}

/* --- values spread over the lanes of a warp --- */

/* Sums of some values of a row. */
template <class T> struct StripSums {
    T     p[4];
    float min, max;
};

template <class T>
__device__ inline StripSums<T> exchanged(const StripSums<T> &s, int step)
{
    StripSums<T> o;
#pragma unroll
    for (int i = 0; i < 4; i++)
        o.p[i] = __shfl_xor_sync((unsigned)ALL_LANES, s.p[i], step);
    o.min = __shfl_xor_sync((unsigned)ALL_LANES, s.min, step);
    o.max = __shfl_xor_sync((unsigned)ALL_LANES, s.max, step);
    return o;
}

template <class T>
__device__ inline StripSums<T> joined(const StripSums<T> &a, const StripSums<T> &b)
{
    StripSums<T> s;
#pragma unroll
    for (int i = 0; i < 4; i++)
        s.p[i] = a.p[i] + b.p[i];
    s.min = fminf(a.min, b.min);
    s.max = fmaxf(a.max, b.max);
    return s;
}

__device__ inline uint32_t exchanged(uint32_t x, int step)
{
    return __shfl_xor_sync((unsigned)ALL_LANES, x, step);
}

__device__ inline uint32_t joined(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* v[0..N) joined over the lanes that differ in bits STEP down to LAST of their number. With
 * each bit a lane keeps half of the values, as long as there are two: they end in v[0..) of
 * it, and the first of them was number `returned`. */
template <int STEP, int LAST, int N, class T, int ALL>
__device__ inline int spread(T (&v)[ALL])
{
    if constexpr (STEP < LAST) {
        return 0;
    } else if constexpr (N == 1) {
        v[0] = joined(v[0], exchanged(v[0], STEP));
        return spread<STEP / 2, LAST, 1>(v);
    } else {
        bool upper = threadIdx.x & STEP;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            T give = upper ? v[i] : v[i + N / 2], keep = upper ? v[i + N / 2] : v[i];
            v[i] = joined(keep, exchanged(give, STEP));
        }
        return (upper ? N / 2 : 0) + spread<STEP / 2, LAST, N / 2>(v);
    }
}

/* Of N values spread over LANES lanes: how many a lane keeps, and whether it is the one of
 * those with the same that tells. */
template <int N, int LANES> __device__ constexpr int kept()
{
    return N > LANES ? N / LANES : 1;
}

template <int N, int LANES, int LAST> __device__ inline bool tells()
{
    return LANES <= N || threadIdx.x / LAST % (LANES > N ? LANES / N : 1) == 0;
}

/* --- one thread's values of one row --- */

__device__ inline bool is_in(uint32_t allowed, int i)
{
    return allowed >> i & 1;
}

__device__ inline uint32_t magnitude_bits(float x)
{
    return __float_as_uint(x) & RECORD_MAGNITUDE;
}

template <bool WHOLE, int N>
__device__ inline StripSums<float> strip_sums(const float (&x)[N], uint32_t allowed,
                                              float shift)
{
    StripSums<float> s = {{0, 0, 0, 0}, CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
    for (int i = 0; i < N; i++) {
        bool  in = WHOLE || is_in(allowed, i);
        float t = in ? x[i] - shift : 0, t2 = t * t;
        s.p[0] += t;
        s.p[1] += t2;
        s.p[2] += t2 * t;
        s.p[3] += t2 * t2;
        s.min = fminf(s.min, in ? x[i] : CUDART_INF_F);
        s.max = fmaxf(s.max, in ? x[i] : -CUDART_INF_F);
    }
    return s;
}

/* NaN, infinities and what f32 is too narrow for, from the sum of fourth powers: of many lanes
 * below 2^128, and not lost among subnormals unless all values are the shift. */
__device__ inline bool strip_is_odd(const StripSums<float> &s, float shift)
{
    return !(s.p[3] < 0x1p120f) || (s.p[3] < 0x1p-96f && (s.min < shift || s.max > shift));
}

/* The same of finite values in double, and counts of the others. */
template <int N>
__device__ inline StripSums<double> strip_odd_sums(const float (&x)[N], uint32_t allowed,
                                                   float shift, uint32_t (&others)[3])
{
    StripSums<double> s = {{0, 0, 0, 0}, CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (!is_in(allowed, i))
            continue;
        if (magnitude_bits(x[i]) < RECORD_INFINITE) {
            double t = (double)x[i] - (double)shift, t2 = t * t;
            s.p[0] += t;
            s.p[1] += t2;
            s.p[2] += t2 * t;
            s.p[3] += t2 * t2;
            s.min = fminf(s.min, x[i]);
            s.max = fmaxf(s.max, x[i]);
        } else {
            others[OF_NAN] += isnan(x[i]);
            others[OF_POS_INF] += x[i] > 0;
            others[OF_NEG_INF] += x[i] < 0;
        }
    }
    return s;
}

template <int N>
__device__ inline void strip_counts(const TileRecord *rec, int map, const float (&x)[N],
                                    uint32_t allowed)
{
    uint32_t *window = rec->window + map * RECORD_WINDOW, outside = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t at = (magnitude_bits(x[i]) >> 15) - RECORD_FIRST;
        if (is_in(allowed, i) && at < RECORD_WINDOW)
            atomicAdd(&window[at], 1u);
        else if (is_in(allowed, i))
            outside |= 1u << i;
    }
    if (!outside)
        return;
    uint64_t *hist = rec->hist + (int64_t)map * HIST_BINS;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (is_in(outside, i) && magnitude_bits(x[i]) < RECORD_INFINITE)
            atomicAdd((unsigned long long *)&hist[magnitude_bits(x[i]) >> 15], 1ull);
}

/* --- rows of a tile --- */

/* A shift for a row without one: its first finite value here, moved to about the mean of
 * those here. A constant row keeps its value exactly. NaN where nothing is finite. */
template <int LANES, int N>
__device__ inline float shift_of(const float (&x)[N], uint32_t allowed)
{
    float    first = CUDART_NAN_F, sum = 0, n = 0;
    unsigned group = threadIdx.x % WARP / LANES * LANES;
    unsigned lanes = LANES == WARP ? (unsigned)ALL_LANES : ((1u << LANES % WARP) - 1) << group;
#pragma unroll
    for (int i = N - 1; i >= 0; i--)
        if (is_in(allowed, i) && magnitude_bits(x[i]) < RECORD_INFINITE)
            first = x[i];
    unsigned have = __ballot_sync((unsigned)ALL_LANES, !isnan(first)) & lanes;
    first = __shfl_sync((unsigned)ALL_LANES, first, have ? __ffs((int)have) - 1 : (int)group);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (is_in(allowed, i) && magnitude_bits(x[i]) < RECORD_INFINITE) {
            sum += x[i] - first;
            n++;
        }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync((unsigned)ALL_LANES, sum, step);
        n += __shfl_xor_sync((unsigned)ALL_LANES, n, step);
    }
    float shift = first + sum / n;
    return magnitude_bits(shift) < RECORD_INFINITE ? shift : first;
}

template <class T> __device__ inline void row_add(RowTally *row, const StripSums<T> &s)
{
    if (!(s.min <= s.max))
        return;  // no value at all
#pragma unroll
    for (int p = 0; p < 4; p++)
        row->sum[p] += (double)s.p[p];
    row->min = fminf(row->min, s.min);
    row->max = fmaxf(row->max, s.max);
}

/* One row, its values in LANES lanes, in double; one that sees its first finite values gets a
 * shift. */
template <int LANES, int N>
__device__ inline void row_add_odd(RowTally *row, const float (&x)[N], uint32_t allowed)
{
    uint32_t others[3] = {0, 0, 0};
    float    shift = row->shift, begun = shift_of<LANES>(x, allowed);
    bool     tells = threadIdx.x % LANES == 0;
    __syncwarp();  // all have read the shift
    if (isnan(shift)) {
        shift = begun;
        if (tells)
            row->shift = begun;
    }
    StripSums<double> s[1] = {strip_odd_sums(x, allowed, shift, others)};
    spread<LANES / 2, 1, 1>(s);
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < 3; i++)
            others[i] += __shfl_xor_sync((unsigned)ALL_LANES, others[i], step);
    if (!tells)
        return;
    row_add(row, s[0]);
#pragma unroll
    for (int i = 0; i < 3; i++)
        row->others[i] += others[i];
}

/* Largest magnitudes of keys, over the rows of this warp. */
template <int LANES, int RUN, int STRIDE, int ROWS, int N>
__device__ inline void strip_keys(const TileRecord *rec, int map, int key,
                                  const float (&x)[ROWS][N], const uint32_t (&allowed)[ROWS])
{
    uint32_t max[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        max[i] = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            uint32_t u = is_in(allowed[r], i) ? magnitude_bits(x[r][i]) : 0;
            max[i] = u < RECORD_INFINITE && u > max[i] ? u : max[i];
        }
    }
    int first = spread<WARP / 2, LANES, N>(max);
    uint32_t *column = rec->key_absmax + (int64_t)map * rec->longest + key;
    if (!tells<N, WARP / LANES, LANES>())
        return;
#pragma unroll
    for (int i = 0; i < kept<N, WARP / LANES>(); i++) {
        int at = first + i;
        if (max[i])
            atomicMax(&column[at / RUN * STRIDE + at % RUN], max[i]);
    }
}

/* Some logits of the tile. All lanes of the warp call together. A thread has N of each of ROWS
 * rows row, row + row_step, ..., all of one map, N at most 32 and, like ROWS, a power of 2; bit
 * i of allowed[r]: x[r][i] counts. x[.][i] belongs to key `key + i / RUN * STRIDE + i % RUN` of
 * the sequence. LANES, RUN, STRIDE of a fragment of m16n8: 4, 2, 8. Calls of a row: where
 * others than its warp's read on, a barrier comes between. */
template <int LANES, int RUN, int STRIDE, int ROWS, int N>
__device__ inline void record_strips(const TileRecord *rec, int map, int row, int row_step,
                                     int key, const float (&x)[ROWS][N],
                                     const uint32_t (&allowed)[ROWS])
{
    constexpr uint32_t ALL = N == 32 ? ~0u : (1u << N % 32) - 1;
    RowTally        *tally = rec->row + row;
    StripSums<float> s[ROWS];
    float shift[ROWS];
    bool  whole = true, odd = false;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        shift[r] = tally[r * row_step].shift;
        whole = whole && allowed[r] == ALL;
    }
    if (__all_sync((unsigned)ALL_LANES, whole)) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            s[r] = strip_sums<true>(x[r], ALL, shift[r]);
            odd = odd || strip_is_odd(s[r], shift[r]);
        }
    } else {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            s[r] = strip_sums<false>(x[r], allowed[r], shift[r]);
            odd = odd || strip_is_odd(s[r], shift[r]);
        }
    }
    if (__any_sync((unsigned)ALL_LANES, odd)) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            row_add_odd<LANES>(tally + r * row_step, x[r], allowed[r]);
    } else {
        int first = spread<LANES / 2, 1, ROWS>(s);
        if (tells<ROWS, LANES, 1>())
#pragma unroll
            for (int i = 0; i < kept<ROWS, LANES>(); i++)
                row_add(tally + (first + i) * row_step, s[i]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        strip_counts(rec, map, x[r], allowed[r]);
    strip_keys<LANES, RUN, STRIDE>(rec, map, key, x, allowed);
    __syncwarp();
}

/* After the last call and a barrier: a row that saw `seen` keys, by one thread. */
__device__ inline void record_close(const TileRecord *rec, int row, int64_t seen, Moments *m,
                                    uint32_t *absmax)
{
    const RowTally *t = &rec->row[row];
    ShiftedSums     s = {{t->sum[0], t->sum[1], t->sum[2], t->sum[3]}, t->shift, t->min,
                         t->max};
    Moments         close = moments_none();
    close.n_nan = t->others[OF_NAN];
    close.n_pos_inf = t->others[OF_POS_INF];
    close.n_neg_inf = t->others[OF_NEG_INF];
    moments_close(&close, &s, seen - close.n_nan - close.n_pos_inf - close.n_neg_inf);
    *m = close;
    *absmax = close.count ? joined(magnitude_bits(s.min), magnitude_bits(s.max)) : 0;
}

/* After the last call and a barrier: counts to global memory, by all threads. */
__device__ inline void record_flush(const TileRecord *rec)
{
    for (int32_t i = threadIdx.x; i < rec->n_maps * RECORD_WINDOW; i += blockDim.x) {
        uint32_t n = rec->window[i];
        uint64_t *hist = rec->hist + (int64_t)(i / RECORD_WINDOW) * HIST_BINS + RECORD_FIRST;
        if (n)
            atomicAdd((unsigned long long *)&hist[i % RECORD_WINDOW], (unsigned long long)n);
    }
}

#endif
