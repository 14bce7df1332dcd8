/* cuda_fakequant.cu - fake quantization of inputs of linear layers, and of keys and values.
 * rows    x' = s round(x / s) in place; s of each row, or of all rows of a sequence
 * kv      x' = s round((x - m) / s) + m in place. Keys: s and m of each channel over KV_GROUP
 *         rows; values: of each row over KV_GROUP channels of a head; rows after a sequence's
 *         last whole group stay
 * shapes  backend.h
 * cost    rows: 8TK bytes, 12TK by sequence (a row is read a second time where it is still in
 *         cache); kv: 16TC bytes: memory bound
 * launch  rows: a block of 256 a row; keys: a thread a channel and group; values: a warp a
 *         span
 * sums    none; operations are rounded one by one: the bits of the CPU's (cpu_vec_round.h)
 * NaN     NaN or infinity makes all that share its scale NaN
 * test    tests/cuda/test_cuda_fakequant.c */
#include <math.h>

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_twin.h"

/* --- rounding --- */

/* Codes of a RowRounding: the largest magnitude is `limit` scales. */
typedef struct {
    float limit, low, high;
} CodeRange;

/* A whole number within [low, high], half to even: 1.5 * 2^23 leaves no bits for a fraction.
 * NaN passes. */
static __device__ float round_within(float v, float low, float high)
{
    const float shifter = 12582912;
    v = v < low ? low : v;
    v = v > high ? high : v;
    return __fsub_rn(__fadd_rn(v, shifter), shifter);
}

/* round(v / scale), to be multiplied by scale. Scale 0, of zeros or of magnitudes too small to
 * have one, gives zeros; a NaN or infinite scale NaN. */
static __device__ float code_of(float v, float scale, CodeRange c)
{
    return scale == 0 ? v : round_within(__fdiv_rn(v, scale), c.low, c.high);
}

/* --- rows --- */

/* Bits of the largest magnitude of x [K], in all threads; NaN is above infinity. */
static __device__ uint32_t row_absmax(const float *x, int64_t K, uint32_t *shared)
{
    uint32_t top = 0;
    for (int64_t k = threadIdx.x; k < K; k += BLOCK)
        top = max(top, __float_as_uint(x[k]) & 0x7fffffff);
    return block_max(top, shared);
}

/* Where codes of 8 bits go as well (cuda_twin.h), NULL: nowhere. */
typedef struct {
    int8_t *codes;
    float  *scales;
    int64_t row_bytes;
} TwinRows;

static __device__ void round_row(float *x, int64_t K, float scale, CodeRange c, TwinRows twin)
{
    int64_t t = blockIdx.x;
    for (int64_t k = threadIdx.x; k < K; k += BLOCK) {
        float code = code_of(x[k], scale, c);
        x[k] = __fmul_rn(code, scale);
        if (twin.codes)
            twin.codes[t * twin.row_bytes + cuda_twin_place(k)] = isnan(code) ? 0 : (int8_t)code;
    }
    if (twin.codes && threadIdx.x == 0)
        twin.scales[t] = isfinite(scale) ? scale : NAN;
}

static __global__ void __launch_bounds__(BLOCK) rows_kernel(float *x, int64_t K, CodeRange c,
                                                            TwinRows twin)
{
    __shared__ uint32_t shared[BLOCK_WARPS];
    float   *row = x + blockIdx.x * K;
    uint32_t top = row_absmax(row, K, shared);
    round_row(row, K, __fdiv_rn(__uint_as_float(top), c.limit), c, twin);
}

/* top [n_sequences] of all rows of each. */
static __global__ void __launch_bounds__(BLOCK) absmax_kernel(uint32_t *top, const float *x,
                                                              int64_t K, const int32_t *sequence)
{
    __shared__ uint32_t shared[BLOCK_WARPS];
    uint32_t most = row_absmax(x + blockIdx.x * K, K, shared);
    if (threadIdx.x == 0)
        atomicMax(&top[sequence[blockIdx.x]], most);
}

static __global__ void __launch_bounds__(BLOCK) sequence_kernel(float *x, const uint32_t *top,
                                                                int64_t K,
                                                                const int32_t *sequence,
                                                                CodeRange c, TwinRows twin)
{
    float scale = __fdiv_rn(__uint_as_float(top[sequence[blockIdx.x]]), c.limit);
    round_row(x + blockIdx.x * K, K, scale, c, twin);
}

static CodeRange code_range(const RowRounding *r)
{
    float half = (float)(1 << (r->bits - 1));
    if (r->wide)
        return CodeRange{half - 0.5f, -half, half - 1};
    return CodeRange{half - 1, 1 - half, half - 1};
}

/* [T] on the device: the sequence of each row. */
static Status send_sequences(Backend *be, const Batch *batch, int64_t T, void **out)
{
    ArenaMark mark = arena_mark(&be->arena);
    int32_t  *of;
    ARENA_NEW(of, &be->arena, T);
    for (int64_t b = 0; b < batch->n_sequences; b++)
        for (int64_t t = batch->start[b]; t < batch->start[b + 1]; t++)
            of[t] = (int32_t)b;
    Status s = cuda_sent(be, out, of, (size_t)T * sizeof *of);
    arena_rewind(&be->arena, mark);
    return s;
}

static Status each_sequence(Backend *be, Tensor *x, const Batch *batch, CodeRange c,
                            TwinRows twin)
{
    cudaStream_t stream = cuda_state(be)->stream;
    int64_t      T = x->shape[0], K = x->shape[1];
    size_t       bytes = (size_t)batch->n_sequences * sizeof(uint32_t);
    void        *sequence, *top;
    TRY(send_sequences(be, batch, T, &sequence));
    TRY(cuda_scratch(be, &top, bytes));
    TRY(cuda_zero(be, top, bytes));
    absmax_kernel<<<(unsigned)T, BLOCK, 0, stream>>>((uint32_t *)top, (const float *)x->data, K,
                                                     (const int32_t *)sequence);
    TRY(cuda_launched("fakequant_absmax"));
    sequence_kernel<<<(unsigned)T, BLOCK, 0, stream>>>((float *)x->data, (const uint32_t *)top,
                                                       K, (const int32_t *)sequence, c, twin);
    return cuda_launched("fakequant_sequence");
}

static Status twin_rows(Backend *be, TwinRows *out, const Tensor *x, int bits)
{
    CudaTwin *twin = NULL;
    if (bits == 8)
        TRY(cuda_twin_open(be, &twin, x));
    *out = twin ? TwinRows{twin->codes, twin->scales, twin->row_bytes} : TwinRows{};
    return OK;
}

Status cuda_fakequant_rows(Backend *be, Tensor *x, const Batch *batch, const RowRounding *r)
{
    CodeRange c = code_range(r);
    TwinRows  twin;
    TRY(cuda_begin(be, x));
    if (tensor_count(x) == 0)
        return OK;
    TRY(twin_rows(be, &twin, x, r->bits));
    if (r->by_sequence)
        return each_sequence(be, x, batch, c, twin);
    rows_kernel<<<(unsigned)x->shape[0], BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)x->data, x->shape[1], c, twin);
    return cuda_launched("fakequant_rows");
}

/* --- keys and values --- */

/* poison: 0, or NaN once a NaN or infinity came by, which minima and maxima may lose. */
typedef struct {
    float min, max, poison;
} Range;

typedef struct {
    float scale, divisor, min;
} Grid;

static __device__ void range_add(Range *r, float v)
{
    r->min = v < r->min ? v : r->min;
    r->max = v > r->max ? v : r->max;
    r->poison = __fadd_rn(r->poison, __fmul_rn(v, 0));
}

/* Equal values have scale 0 and stay as they are. */
static __device__ Grid grid_of(Range r, float levels)
{
    float scale = __fadd_rn(__fdiv_rn(__fsub_rn(r.max, r.min), levels), r.poison);
    return Grid{scale, scale > 0 ? scale : 1, r.min};
}

static __device__ float round_to_grid(float v, Grid g, float levels)
{
    float code = round_within(__fdiv_rn(__fsub_rn(v, g.min), g.divisor), 0, levels);
    return __fadd_rn(__fmul_rn(code, g.scale), g.min);
}

/* Channel c of the KV_GROUP rows from first[blockIdx.y] on, read a second time where they are
 * still in cache: all of them in registers would leave room for few threads. */
static __global__ void __launch_bounds__(BLOCK) keys_kernel(float *k, int64_t C,
                                                            const int32_t *first, float levels)
{
    int64_t c = grid_index();
    if (c >= C)
        return;
    float *x = k + first[blockIdx.y] * C + c;
    Range  r = {*x, *x, 0};
#pragma unroll 8
    for (int t = 0; t < KV_GROUP; t++)
        range_add(&r, x[t * C]);
    Grid g = grid_of(r, levels);
#pragma unroll 4
    for (int t = 0; t < KV_GROUP; t++, x += C)
        *x = round_to_grid(*x, g, levels);
}

static __device__ Range warp_range(float v)
{
    Range r = {v, v, __fmul_rn(v, 0)};
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        float min = __shfl_xor_sync((unsigned)ALL_LANES, r.min, step);
        float max = __shfl_xor_sync((unsigned)ALL_LANES, r.max, step);
        r.poison = __fadd_rn(r.poison, __shfl_xor_sync((unsigned)ALL_LANES, r.poison, step));
        r.min = min < r.min ? min : r.min;
        r.max = max > r.max ? max : r.max;
    }
    return r;
}

/* Channels of v in spans of WARP, or what is left of a head. */
typedef struct {
    int32_t head_dim, spans;  // of a head
    int32_t per_row;
} Spans;

/* Warps in order take the spans of the KV_GROUP rows from first[blockIdx.y] on. Lanes past the
 * end of one hold its first value. */
static __global__ void __launch_bounds__(BLOCK) values_kernel(float *v, int64_t C, Spans s,
                                                              const int32_t *first, float levels)
{
    int32_t i = (int32_t)(blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP);
    int32_t row = i / s.per_row, at = i % s.per_row;
    if (row >= KV_GROUP)
        return;
    int32_t head = at / s.spans, begin = at % s.spans * WARP, lane = threadIdx.x % WARP;
    bool    mine = lane < s.head_dim - begin;
    float  *x = v + (first[blockIdx.y] + row) * C + (int64_t)head * s.head_dim + begin;
    float   value = x[mine ? lane : 0];
    Grid    g = grid_of(warp_range(value), levels);
    __syncwarp();
    if (mine)
        x[lane] = round_to_grid(value, g, levels);
}

/* First rows of all whole groups of all sequences, on the device. */
static Status send_groups(Backend *be, const Batch *batch, void **out, int64_t *n)
{
    int64_t T = batch->start[batch->n_sequences];
    ArenaMark mark = arena_mark(&be->arena);
    int32_t  *first;
    ARENA_NEW(first, &be->arena, T / KV_GROUP + 1);
    *n = 0;
    for (int64_t b = 0; b < batch->n_sequences; b++)
        for (int64_t t = batch->start[b]; t + KV_GROUP <= batch->start[b + 1]; t += KV_GROUP)
            first[(*n)++] = (int32_t)t;
    Status s = *n ? cuda_sent(be, out, first, (size_t)*n * sizeof *first) : OK;
    arena_rewind(&be->arena, mark);
    return s;
}

Status cuda_fakequant_kv(Backend *be, Tensor *k, Tensor *v, const Batch *batch, int64_t head_dim,
                         int bits)
{
    enum { MOST_Y = 65535 };
    cudaStream_t stream = cuda_state(be)->stream;
    int64_t      C = k->shape[1], n = 0, spans = ceil_div(head_dim, WARP);
    int64_t      per_row = C / head_dim * spans;
    Spans        s = {(int32_t)head_dim, (int32_t)spans, (int32_t)per_row};
    float        levels = (float)((1 << bits) - 1);
    void        *sent;
    static_assert((int)KV_GROUP == (int)WARP, "a warp takes a span");
    TRY(cuda_begin(be, k));
    TRY(cuda_begin(be, v));
    TRY(send_groups(be, batch, &sent, &n));
    for (int64_t i = 0; i < n && C; i += MOST_Y) {
        const int32_t *first = (const int32_t *)sent + i;
        unsigned       some = (unsigned)i64_min(n - i, MOST_Y);
        keys_kernel<<<dim3((unsigned)ceil_div(C, BLOCK), some), BLOCK, 0, stream>>>(
            (float *)k->data, C, first, levels);
        TRY(cuda_launched("fakequant_keys"));
        dim3 grid((unsigned)ceil_div(KV_GROUP * per_row, BLOCK_WARPS), some);
        values_kernel<<<grid, BLOCK, 0, stream>>>((float *)v->data, C, s, first, levels);
        TRY(cuda_launched("fakequant_values"));
    }
    return OK;
}
