/* cuda_attn_bf16_plain.cu - attention in bf16 where no tile is wide enough: rows of logits in
 * memory (cuda_attn_bf16_rows.cu), a few queries at a time. Slow, but for any width.
 * shapes    any
 * cost      V is read once a query and head: bound by the second-level cache
 * launch    a block a query and block of heads
 * sums      weights in double, strided over 256 threads, then a tree; an output is one chain
 *           over keys in f32
 * NaN       stays in the rows that see it
 * test      tests/cuda/test_cuda_attn_bf16.c */
#include "kernels/cuda/cuda_attn_bf16.h"
#include "kernels/cuda/cuda_attn.cuh"
#include "kernels/cuda/cuda_attn_record.cuh"

#include <cuda_bf16.h>

enum { PIECE_BYTES = 64 << 20, STRIP = 4 };

/* Queries first .. first + n of all, and all their rows: [n,B,R]. */
typedef struct {
    int64_t  first, n;
    AttnRow *rows;
    float   *x;     // [n,B,R,longest]
} Piece;

static __device__ float rounded(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

static __global__ void spell_kernel(AttnCall c, Piece p)
{
    int32_t maps = c.n_blocks * c.n_rows;
    for (int64_t i = grid_index(); i < p.n * maps; i += grid_size()) {
        int32_t row = (int32_t)(p.first + i / maps), j = (int32_t)(i % maps), s = 0;
        while (row >= c.start[s + 1])
            s++;
        int32_t position = c.key_start[s + 1] - c.key_start[s] - (c.start[s + 1] - row);
        AttnRow r = {s, row, position, j / c.n_rows, j % c.n_rows};
        p.rows[i] = r;
    }
}

/* --- measures: a warp a row --- */

static __global__ void __launch_bounds__(BLOCK) largest_kernel(AttnCall c, Piece p, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    if (i >= n)
        return;
    AttnRow      r = p.rows[i];
    AttnSeen     seen = attn_seen(c, r.position);
    const float *x = p.x + i * c.longest;
    uint32_t     most = 0;
    for (int32_t j = seen.from + threadIdx.x % WARP; j < seen.end; j += WARP)
        most = max(most, magnitude_bits(x[j]));
    most = warp_max(most);
    if (threadIdx.x % WARP == 0)
        c.row_scale[attn_row(c, r.row, r.block, r.r)] = __uint_as_float(most);
}

static __global__ void __launch_bounds__(BLOCK) record_kernel(AttnCall c, Piece p, int64_t n)
{
    extern __shared__ __align__(16) unsigned char shared[];
    int64_t      i = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    AttnRow      r = p.rows[min(i, n - 1)];
    AttnSeen     seen = attn_seen(c, r.position);
    const float *x = p.x + min(i, n - 1) * c.longest;
    TileRecord   rec = record_open(shared, BLOCK_WARPS, c);
    int32_t      lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    __syncthreads();
    for (int32_t key = seen.from; i < n && key < seen.end; key += STRIP * WARP) {
        float    strip[1][STRIP];
        uint32_t allowed[1] = {0};
#pragma unroll
        for (int k = 0; k < STRIP; k++) {
            bool in = key + k * WARP + lane < seen.end;
            strip[0][k] = in ? x[key + k * WARP + lane] : 0;
            allowed[0] |= (uint32_t)in << k;
        }
        record_strips<WARP, 1, WARP>(&rec, attn_map(c, r.r), warp, 1, key + lane, strip,
                                     allowed);
    }
    __syncthreads();
    record_flush(&rec);
    if (i < n && lane == 0) {
        int64_t at = attn_row(c, r.row, r.block, r.r);
        record_close(&rec, warp, seen.end - seen.from, &c.moments[at], &c.row_absmax[at]);
    }
}

/* --- a query and its block of heads --- */

typedef union {
    float  of_float[BLOCK_WARPS];
    double of_double[BLOCK_WARPS];
} Shared;

/* A row of logits to weights, rounded; the sum of what they were. */
static __device__ double weigh(const AttnCall &c, float *x, const AttnRow &r, Shared *shared)
{
    int64_t  at = attn_row(c, r.row, r.block, r.r);
    AttnSeen seen = attn_seen(c, r.position);
    float    top = -CUDART_INF_F, scale = c.row_scale ? c.row_scale[at] : 0;
    double   sum = 0;
    for (int32_t j = seen.from + threadIdx.x; j < seen.end; j += BLOCK) {
        if (c.row_scale)
            x[j] = attn_quantized(x[j], scale, c.code_limit);
        top = fmaxf(top, x[j]);
    }
    top = block_max(top, shared->of_float);
    for (int32_t j = seen.from + threadIdx.x; j < seen.end; j += BLOCK) {
        float weight = expf(x[j] - attn_safe_top(top));
        sum += (double)weight;
        x[j] = rounded(weight);
    }
    sum = block_sum(sum, shared->of_double);  // and all see x
    if (c.softmax && threadIdx.x == 0) {
        AttnSoftmax s = {top, sum};
        c.softmax[at] = s;
    }
    return sum;
}

/* Column `column` of a row's weights times V. */
static __device__ float column_sum(const AttnCall &c, const float *x, const AttnRow &r,
                                   int32_t column)
{
    AttnSeen     seen = attn_seen(c, r.position);
    const float *v = attn_v(c, r.sequence, attn_group(c, r.block)) + column;
    float        sum = 0;
    for (int32_t j = seen.from; j < seen.end; j++)
        sum = fmaf(x[j], rounded(v[j * attn_v_step(c)]), sum);
    return sum;
}

static __device__ void put_head(const AttnCall &c, const float *signal, const float *noise,
                                const AttnRow &r, float w0, float w1, Shared *shared)
{
    float *out = c.out + ((int64_t)r.row * c.n_heads + attn_head(c, r.block, r.r)) * c.dv;
    float  squares = 0;
    for (int32_t i = threadIdx.x; i < c.dv; i += BLOCK) {
        float v = column_sum(c, signal, r, i);
        v = noise ? attn_difference(v, w0, column_sum(c, noise, r, i), w1) : v * w0;
        squares += v * v;
        out[i] = v;
    }
    if (c.norm_eps < 0)
        return;
    float rms = attn_rms(c, block_sum(squares, shared->of_float));
    for (int32_t i = threadIdx.x; i < c.dv; i += BLOCK)
        out[i] = attn_normed(c, out[i], rms, i);
}

static __global__ void __launch_bounds__(BLOCK) plain_kernel(AttnCall c, Piece p)
{
    __shared__ Shared shared;
    int64_t first = (int64_t)blockIdx.x * c.n_rows;
    float  *x = p.x + first * c.longest, *noise = NULL;
    double  noise_sum = 0;
    if (c.n_maps == 2) {
        noise = x + (int64_t)c.n_signals * c.longest;
        noise_sum = weigh(c, noise, p.rows[first + c.n_signals], &shared);
    }
    for (int32_t i = 0; i < c.n_signals; i++) {
        AttnRow r = p.rows[first + i];
        float  *signal = x + (int64_t)i * c.longest, w1 = 0;
        float   w0 = (float)(1 / weigh(c, signal, r, &shared));
        if (noise)
            w1 = (float)(attn_lambda(c, r.row, attn_head(c, r.block, i)) / noise_sum);
        put_head(c, signal, noise, r, w0, w1, &shared);
    }
}

/* --- the call --- */

static Status run_piece(Backend *be, const Attention *a, const AttnCall *c, const Piece *p,
                        bool only_scale)
{
    cudaStream_t stream = cuda_state(be)->stream;
    int64_t      n = p->n * c->n_blocks * c->n_rows;
    unsigned     warps = (unsigned)ceil_div(n, BLOCK_WARPS);
    spell_kernel<<<grid_for(n), BLOCK, 0, stream>>>(*c, *p);
    TRY(cuda_launched("attention: rows of queries"));
    TRY(cuda_attn_rows_bf16(be, a, c, p->rows, n, p->x, c->longest));
    if (only_scale) {
        largest_kernel<<<warps, BLOCK, 0, stream>>>(*c, *p, n);
        return cuda_launched("attention: magnitudes of rows");
    }
    if (c->moments) {
        record_kernel<<<warps, BLOCK, record_bytes(BLOCK_WARPS, c->n_maps), stream>>>(*c, *p, n);
        TRY(cuda_launched("attention: recording of rows"));
    }
    plain_kernel<<<(unsigned)(p->n * c->n_blocks), BLOCK, 0, stream>>>(*c, *p);
    return cuda_launched("attention: rows to outputs");
}

Status cuda_attn_bf16_plain(Backend *be, const Attention *a, const AttnCall *c, bool only_scale)
{
    Piece   p = {};
    int64_t maps = (int64_t)c->n_blocks * c->n_rows;
    size_t  row = (size_t)c->longest * sizeof *p.x;
    if (c->n_queries == 0)
        return OK;
    int64_t most = i64_min(c->n_queries, i64_max(1, (int64_t)(PIECE_BYTES / row) / maps));
    TRY(cuda_scratch(be, (void **)&p.rows, (size_t)(most * maps) * sizeof *p.rows));
    TRY(cuda_scratch(be, (void **)&p.x, (size_t)(most * maps) * row));
    for (; p.first < c->n_queries; p.first += most) {
        p.n = i64_min(most, c->n_queries - p.first);
        TRY(run_piece(be, a, c, &p, only_scale));
    }
    return OK;
}
