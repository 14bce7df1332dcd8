/* cuda_attn_f32.cu - tiles of attention in f32.
 * out       backend.h, Attention
 * shapes    any; a block takes up to 64 lines (a query's row of q each) of one block of heads
 *           and walks over its keys, 128 at a time. What does not fit goes in several: heads of
 *           more than 56 signals, columns of V beyond 256 (their logits are made again)
 * lines     eight a warp, signals first, the noise from the next warp on: a warp's lines share
 *           a map, so its q comes from shared memory as broadcasts. A lane has keys lane,
 *           lane + 32, .. of all eight, then 2, 4 or 8 columns of their outputs: maxima, sums
 *           and weights stay within the warp, and only tiles of K and V need barriers
 * copies    16 dims of K and q, or 16 to 32 rows of V, one chunk ahead of the arithmetic
 * cost      2 R (d + dv) flops a query, block of heads and allowed key: bound by fused
 *           multiply-adds; a fifth to two thirds of them are cycles of shared memory. 4 (K d +
 *           dv + 64/128 d) bytes of the second-level cache a key and 64 lines
 * launch    256 threads, 2 blocks a multiprocessor up to dv 128, else 1
 * sums      f32, a chain over d a logit (the CPU's bits) and a chain over keys an output, begun
 *           again from a multiple when the running maximum rises. A row's weights: 128 in f32
 *           as a tree, these in double. All depends on a key's place alone
 * NaN       a query's NaN stays in its row, a key's or value's in rows that see it: where a
 *           warp's lines do not all see a key, what is not seen is not even multiplied by 0
 * test      tests/cuda/test_cuda_attention.c */
#include "kernels/cuda/cuda_attn.cuh"
#include "kernels/cuda/cuda_attn_record.cuh"
#include "kernels/cuda/cuda_ptx.cuh"

enum {
    LINES = 8,                            // of a warp
    SETS = 4,                             // keys of a lane, WARP apart
    KEYS = SETS * WARP,                   // of a tile
    ALL_LINES = BLOCK_WARPS * LINES,      // of a block
    DIMS = 16,                            // of a chunk of K
    QUADS = DIMS / 4,
    LD_K = DIMS + 4,                      // 8 keys side by side lie in 32 different banks
    GROUP_COLUMNS = 128,                  // columns that the lanes of a warp load at once
    MOST_COLUMNS = 256,
    MOST_SIGNALS = ALL_LINES - LINES      // a warp is left to the noise
};

/* What a launch does besides the softmax and the product with V, or in their place. */
enum { TILE_PLAIN, TILE_RECORD, TILE_ABSMAX };

typedef struct {
    const AttnTile *tiles;
    int32_t n_tiles, queries;     // queries of a tile, at most
    int32_t n_parts, signals;     // signals of a block's part, at most
    int32_t column;               // the first of this launch
    int32_t stage;                // floats of a chunk's place
    bool    wide_k, wide_v, wide_out;  // rows begin at multiples of 16 bytes
    bool    whole;                // all columns at once: norms are made here
} TilePlan;

/* A query's row of q: a row of logits. */
typedef struct {
    int64_t row;      // of [T,B,R]
    double  sum;      // of its weights, at the end
    int32_t query;    // of all
    int32_t r;
    int32_t end;      // keys that it sees end here
    bool    valid;    // else the last query's again, for nothing
} Line;

/* Where the block's chunks come from. */
typedef struct {
    const float *q;               // this thread's quad of dims of its line
    const float *k, *v;           // of the sequence's first key
    int64_t      k_step, v_step;
    int32_t      from, end;       // keys that the tile sees
    int32_t      columns;         // of V
} Source;

/* --- copies --- */

static __device__ inline bool tile_sees(const Source &s, int32_t key)
{
    return key >= s.from && key < s.end;
}

/* K [maps,KEYS,LD_K] and q [ALL_LINES,DIMS] from dim `dim` on; keys that the tile does not see
 * are 0. */
static __device__ inline void copy_keys(float *to, const AttnCall &c, const TilePlan &p,
                                        const Source &s, int32_t key, int32_t dim)
{
    int32_t quad = threadIdx.x % QUADS, line = threadIdx.x / QUADS;
    int32_t n = c.d - dim - 4 * quad;  // dims that are left from here on
    float  *q_to = to + c.n_key_maps * KEYS * LD_K + line * DIMS + 4 * quad;
    if (n <= 0)
        return;
    to += line * LD_K + 4 * quad;
    if (p.wide_k) {
        ptx_cp_async(ptx_shared(q_to), s.q + dim);
#pragma unroll
        for (int32_t i = 0; i < KEYS; i += ALL_LINES) {
            bool in = tile_sees(s, key + line + i);
            const float *from = s.k + (in ? (key + line + i) * s.k_step + dim + 4 * quad : 0);
            for (int32_t m = 0; m < c.n_key_maps; m++)
                ptx_cp_async_some(ptx_shared(to + (m * KEYS + i) * LD_K),
                                  from + (int64_t)m * c.d, in ? 16 : 0);
        }
        return;
    }
    for (int32_t j = 0; j < 4; j++) {
        q_to[j] = j < n ? s.q[dim + j] : 0;
        for (int32_t i = 0; i < KEYS; i += ALL_LINES)
            for (int32_t m = 0; m < c.n_key_maps; m++) {
                int64_t at = (key + line + i) * s.k_step + (int64_t)m * c.d + dim + 4 * quad;
                bool    in = tile_sees(s, key + line + i) && j < n;
                to[(m * KEYS + i) * LD_K + j] = in ? s.k[at + j] : 0;
            }
    }
}

/* V [ROWS,COLUMNS] from key `key` on; what is not seen, or no column, is 0. */
template <int COLUMNS, int ROWS>
static __device__ inline void copy_values(float *to, const TilePlan &p, const Source &s,
                                          int32_t key)
{
    constexpr int LINE = COLUMNS / 4;  // quads of a row
    int32_t quad = threadIdx.x % LINE, row = threadIdx.x / LINE;
    int32_t n = s.columns - 4 * quad;
    to += row * COLUMNS + 4 * quad;
    key += row;
#pragma unroll
    for (int32_t i = 0; i < ROWS; i += BLOCK / LINE) {
        bool in = tile_sees(s, key + i) && n > 0;
        const float *from = s.v + (in ? (key + i) * s.v_step + 4 * quad : 0);
        if (p.wide_v)
            ptx_cp_async_some(ptx_shared(to + i * COLUMNS), from, in ? 16 : 0);
        else
            for (int32_t j = 0; j < 4; j++)
                to[i * COLUMNS + j] = in && j < n ? from[j] : 0;
    }
}

/* The chunk under way is there, and all are done with the one before. */
static __device__ inline void arrive()
{
    ptx_cp_wait<0>();
    __syncthreads();
}

/* --- a warp's lines --- */

/* Which of its keys from `key` on the lane's line sees, a bit a set. */
static __device__ inline uint32_t seen_sets(int32_t end, int32_t reach, int32_t key)
{
    uint32_t seen = 0;
#pragma unroll
    for (int j = 0; j < SETS; j++) {
        int32_t s = key + j * WARP;
        seen |= (s < end && s >= end - reach ? 1u : 0u) << j;
    }
    return seen;
}

enum { JOIN_MAX, JOIN_SUM };

template <int HOW> static __device__ inline float join(float a, float b)
{
    return HOW == JOIN_MAX ? fmaxf(a, b) : a + b;  // a maximum passes over NaN
}

/* v[i] of line i over all lanes: lane l gets that of line l / 4. A tree, the same of any line. */
template <int HOW> static __device__ inline float of_line(float (&v)[LINES])
{
#pragma unroll
    for (int step = WARP / 2, n = LINES / 2; n > 0; step /= 2, n /= 2) {
        bool upper = threadIdx.x & step;
#pragma unroll
        for (int i = 0; i < n; i++) {
            float give = upper ? v[i] : v[i + n], keep = upper ? v[i + n] : v[i];
            v[i] = join<HOW>(keep, __shfl_xor_sync((unsigned)ALL_LANES, give, step));
        }
    }
    v[0] = join<HOW>(v[0], __shfl_xor_sync((unsigned)ALL_LANES, v[0], 2));
    return join<HOW>(v[0], __shfl_xor_sync((unsigned)ALL_LANES, v[0], 1));
}

/* What of_line gave for line i, to all lanes. */
template <class T> static __device__ inline T from_line(T x, int i)
{
    return __shfl_sync((unsigned)ALL_LANES, x, i * (WARP / LINES));
}

/* --- arithmetic --- */

/* x += q k over n dims of a chunk; k: this lane's first key. */
static __device__ inline void add_products(float (&x)[LINES][SETS], const float *q,
                                           const float *k, int32_t n)
{
#pragma unroll
    for (int g = 0; g < DIMS; g += 4) {
        if (g >= n)
            break;
        float4 right[SETS];
#pragma unroll
        for (int j = 0; j < SETS; j++)
            right[j] = *(const float4 *)(k + j * WARP * LD_K + g);
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            float4 left = *(const float4 *)(q + i * DIMS + g);
#pragma unroll
            for (int j = 0; j < SETS; j++) {
                x[i][j] = __fmaf_rn(left.x, right[j].x, x[i][j]);
                x[i][j] = __fmaf_rn(left.y, right[j].y, x[i][j]);
                x[i][j] = __fmaf_rn(left.z, right[j].z, x[i][j]);
                x[i][j] = __fmaf_rn(left.w, right[j].w, x[i][j]);
            }
        }
    }
}

template <int N> static __device__ inline void load(float (&to)[N], const float *from)
{
    if constexpr (N == 4) {
        float4 v = *(const float4 *)from;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        float2 v = *(const float2 *)from;
        to[0] = v.x, to[1] = v.y;
    }
}

template <int N> static __device__ inline void store(float *to, const float (&v)[N])
{
    if constexpr (N == 4)
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
    else
        *(float2 *)to = make_float2(v[0], v[1]);
}

/* o += weights v over ROWS keys from `key` on. p [LINES,WARP] weights; v: this lane's first
 * column. ALL: every line sees every one of these keys. */
template <bool ALL, int COLUMNS, int ROWS, int N>
static __device__ inline void add_values(float (&o)[LINES][N], const float *p, const float *v,
                                         const Line *lines, int32_t key, int32_t reach)
{
    constexpr int W = N < 4 ? N : 4, GROUPS = N / W;
#pragma unroll 2
    for (int k = 0; k < ROWS; k += 4) {
        float right[4][GROUPS][W];
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                load(right[e][g], v + (k + e) * COLUMNS + g * GROUP_COLUMNS);
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            float left[4];
            load(left, p + i * WARP + k);
            int32_t end = ALL ? 0 : lines[i].end;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (!ALL && (key + k + e >= end || key + k + e < end - reach))
                    continue;
#pragma unroll
                for (int j = 0; j < N; j++)
                    o[i][j] = fmaf(left[e], right[e][j / W][j % W], o[i][j]);
            }
        }
    }
}

/* Logits of line i to what the softmax sees: quantized, then masked. */
static __device__ inline void see(float (&x)[SETS], uint32_t seen, const AttnCall &c,
                                  const Line &line)
{
    float scale = c.row_scale ? c.row_scale[line.row] : 0;
#pragma unroll
    for (int j = 0; j < SETS; j++) {
        if (c.row_scale)
            x[j] = attn_quantized(x[j], scale, c.code_limit);
        x[j] = seen >> j & 1 ? x[j] : -CUDART_INF_F;
    }
}

/* What of_line gives: of line lane / 4. */
typedef struct {
    float  top;
    double sum;
} Softmax;

/* Logits to weights; o is begun again from a multiple where a line's top rises. */
template <int N>
static __device__ inline void weigh(float (&x)[LINES][SETS], float (&o)[LINES][N], Softmax *s)
{
    float v[LINES];
#pragma unroll
    for (int i = 0; i < LINES; i++)
        v[i] = fmaxf(fmaxf(x[i][0], x[i][1]), fmaxf(x[i][2], x[i][3]));
    float top = fmaxf(s->top, of_line<JOIN_MAX>(v)), keep = attn_keep(s->top, top);
    s->top = top;
    top = attn_safe_top(top);
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        float t = from_line(top, i);
#pragma unroll
        for (int j = 0; j < SETS; j++)
            x[i][j] = expf(x[i][j] - t);
        v[i] = (x[i][0] + x[i][1]) + (x[i][2] + x[i][3]);
    }
    s->sum = s->sum * (double)keep + (double)of_line<JOIN_SUM>(v);
    if (__all_sync((unsigned)ALL_LANES, keep == 1))
        return;
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        float again = from_line(keep, i);
#pragma unroll
        for (int j = 0; j < N; j++)
            o[i][j] *= again;
    }
}

/* --- the end of a tile --- */

/* Where a line's columns of this lane go. */
static __device__ inline float *out_at(const AttnCall &c, const TilePlan &p, const Line &line,
                                       int32_t head)
{
    return c.out + ((int64_t)line.query * c.n_heads + head) * c.dv + p.column;
}

template <int N>
static __device__ inline void write_line(float *out, const float (&v)[N], int32_t columns,
                                         bool wide)
{
    constexpr int W = N < 4 ? N : 4;
#pragma unroll
    for (int g = 0; g < N; g += W) {
        int32_t column = g / W * GROUP_COLUMNS + threadIdx.x % WARP * W;
        float   part[W];
#pragma unroll
        for (int j = 0; j < W; j++)
            part[j] = v[g + j];
        if (wide && column < columns)
            store(out + column, part);
#pragma unroll
        for (int j = 0; j < W; j++)
            if (!wide && column + j < columns)
                out[column + j] = part[j];
    }
}

/* o of signals: A1 v - lambda A2 v. noise: a place for the noise of GROUP_COLUMNS columns. */
template <int COLUMNS, int N>
static __device__ inline void subtract_noise(float (&o)[LINES][N], const AttnCall &c,
                                             const Line *lines, int32_t warp, int32_t signals,
                                             int32_t n_signal_warps, float *noise)
{
    constexpr int W = N < 4 ? N : 4, STEP = COLUMNS < GROUP_COLUMNS ? COLUMNS : GROUP_COLUMNS;
    const Line *own = lines + warp * LINES, *other = lines + n_signal_warps * LINES;
    bool    is_noise = warp >= n_signal_warps;
    int32_t lane = threadIdx.x % WARP, mine = lane / (WARP / LINES);
    int32_t query = (warp * LINES + mine) / signals;  // of the tile
    float   w0 = 0, w1 = 0;
    if (!is_noise && own[mine].valid) {
        int32_t head = own[mine].r + (int32_t)(own[mine].row / c.n_rows % c.n_blocks) * c.n_signals;
        w0 = (float)(1 / own[mine].sum);
        if (c.n_maps == 2)
            w1 = (float)(attn_lambda(c, own[mine].query, head) / other[query].sum);
    }
#pragma unroll
    for (int g = 0; g < N; g += W) {
        float part[W];
        if (is_noise)
#pragma unroll
            for (int i = 0; i < LINES; i++) {
#pragma unroll
                for (int j = 0; j < W; j++)
                    part[j] = o[i][g + j];
                store(noise + ((warp - n_signal_warps) * LINES + i) * STEP + lane * W, part);
            }
        __syncthreads();
        if (!is_noise)
#pragma unroll
            for (int i = 0; i < LINES; i++) {
                float a = from_line(w0, i), b = from_line(w1, i);
#pragma unroll
                for (int j = 0; j < W; j++)
                    part[j] = 0;
                if (c.n_maps == 2)
                    load(part, noise + from_line(query, i) * STEP + lane * W);
#pragma unroll
                for (int j = 0; j < W; j++)
                    o[i][g + j] = attn_difference(o[i][g + j], a, part[j], b);
            }
        __syncthreads();
    }
}

/* Norm of each signal, and out. */
template <int N>
static __device__ inline void finish(float (&o)[LINES][N], const AttnCall &c, const TilePlan &p,
                                     const Source &s, const Line *own, int32_t block)
{
    constexpr int W = N < 4 ? N : 4;
    float rms = 1;
    if (p.whole && c.norm_eps >= 0) {
        float square[LINES];
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            square[i] = 0;
#pragma unroll
            for (int j = 0; j < N; j++)
                square[i] += o[i][j] * o[i][j];
        }
        rms = attn_rms(c, of_line<JOIN_SUM>(square));
    }
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        float by = from_line(rms, i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            int32_t column = j / W * GROUP_COLUMNS + threadIdx.x % WARP * W + j % W;
            if (p.whole && c.norm_eps >= 0 && column < s.columns)
                o[i][j] = attn_normed(c, o[i][j], by, column);
        }
        if (own[i].valid)
            write_line(out_at(c, p, own[i], attn_head(c, block, own[i].r)), o[i], s.columns,
                       p.wide_out);
    }
}

/* What the second pass and the record want of the rows. The noise is the first part's. */
template <int MODE>
static __device__ inline void leave(const AttnCall &c, const TilePlan &p, const Line *lines,
                                    const TileRecord *rec, const Softmax *s, int32_t part)
{
    int32_t line = threadIdx.x / (WARP / LINES);
    const Line *l = &lines[line];
    if (threadIdx.x % (WARP / LINES) || !l->valid || (part > 0 && attn_map(c, l->r)))
        return;
    if (c.softmax && p.column == 0) {
        c.softmax[l->row].top = s->top;
        c.softmax[l->row].sum = s->sum;
    }
    if (MODE == TILE_RECORD)
        record_close(rec, line, min(l->end, c.reach), &c.moments[l->row],
                     &c.row_absmax[l->row]);
}

/* --- a tile --- */

/* Line i of the block. A warp has lines of one kind; those without a query take the last. */
static __device__ inline Line line_at(const AttnCall &c, const TilePlan &p, const AttnTile &t,
                                      int32_t block, int32_t part, int32_t i)
{
    int32_t first = part * p.signals, signals = min(p.signals, c.n_signals - first);
    int32_t n_signal_lines = ALL_LINES;
    if (c.n_maps == 2)
        n_signal_lines = (p.queries * p.signals + LINES - 1) / LINES * LINES;
    bool    noise = i >= n_signal_lines;
    int32_t at = noise ? i - n_signal_lines : i, each = noise ? 1 : signals;
    int32_t query = min(at / each, t.n_rows - 1);
    Line    l;
    l.sum = 0;
    l.valid = at / each < t.n_rows;
    l.r = noise ? c.n_signals : first + at % each;
    l.query = t.row + query;
    l.end = t.position + query + 1;
    l.row = attn_row(c, l.query, block, l.r);
    return l;
}

static __device__ inline Source source_of(const AttnCall &c, const TilePlan &p,
                                          const AttnTile &t, int32_t block, const Line *lines)
{
    Source  s;
    int32_t group = attn_group(c, block);
    s.q = c.q + lines[threadIdx.x / QUADS].row * c.d + threadIdx.x % QUADS * 4;
    s.k = attn_k(c, t.sequence, group, 0);
    s.v = attn_v(c, t.sequence, group) + p.column;
    s.k_step = attn_k_step(c);
    s.v_step = attn_v_step(c);
    s.from = attn_seen(c, t.position).from;
    s.end = t.position + t.n_rows;
    s.columns = min(c.dv - p.column, MOST_COLUMNS);
    return s;
}

template <int COLUMNS, int MODE>
static __global__ __launch_bounds__(BLOCK, 1)
void tile_kernel(AttnCall c, TilePlan p)
{
    constexpr int N = COLUMNS / WARP, ROWS = COLUMNS > GROUP_COLUMNS ? 16 : 32;
    constexpr int CHUNKS = KEYS / ROWS, PER_SET = WARP / ROWS;
    extern __shared__ float4 shared[];
    __shared__ Line lines[ALL_LINES];
    float  *stage = (float *)shared, *weights = stage + 2 * p.stage;
    int32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    unsigned work = blockIdx.x / (unsigned)p.n_tiles;
    int32_t part = (int32_t)(work % (unsigned)p.n_parts);
    int32_t block = (int32_t)(work / (unsigned)p.n_parts);
    AttnTile t = p.tiles[blockIdx.x % (unsigned)p.n_tiles];
    if (threadIdx.x < ALL_LINES)
        lines[threadIdx.x] = line_at(c, p, t, block, part, threadIdx.x);
    TileRecord rec;
    if (MODE == TILE_RECORD)
        rec = record_open(weights + ALL_LINES * WARP, ALL_LINES, c);
    __syncthreads();

    const Source s = source_of(c, p, t, block, lines);
    const Line  *own = lines + warp * LINES;
    const bool   idle = !own[0].valid;
    const int32_t map = attn_map(c, own[0].r), first_end = own[0].end;
    const int32_t last_end = own[LINES - 1].end;
    const float *k_of_map = stage + (c.n_key_maps == 2 ? map : 0) * KEYS * LD_K + lane * LD_K;
    const float *q_of_warp = stage + c.n_key_maps * KEYS * LD_K + warp * LINES * DIMS;
    float   x[LINES][SETS], o[LINES][N];
    uint32_t absmax[LINES];
    Softmax softmax = {-CUDART_INF_F, 0};
    int32_t at = 0;  // the stage whose chunk is next
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        absmax[i] = 0;
#pragma unroll
        for (int j = 0; j < N; j++)
            o[i][j] = 0;
    }
    weights += warp * LINES * WARP;

    int32_t key = s.from / KEYS * KEYS;
    copy_keys(stage, c, p, s, key, 0);
    ptx_cp_commit();
    for (; key < s.end; key += KEYS) {
        bool sees = !idle && key < last_end && key + KEYS > first_end - c.reach;
        int32_t chunk = max(s.from - key, 0) / ROWS;
        int32_t last = min((s.end - key + ROWS - 1) / ROWS, CHUNKS);
#pragma unroll
        for (int i = 0; i < LINES; i++)
#pragma unroll
            for (int j = 0; j < SETS; j++)
                x[i][j] = 0;
        for (int32_t dim = 0; dim < c.d; dim += DIMS) {
            float *next = stage + (at ^ 1) * p.stage;
            arrive();
            if (dim + DIMS < c.d)
                copy_keys(next, c, p, s, key, dim + DIMS);
            else if (MODE != TILE_ABSMAX)
                copy_values<COLUMNS, ROWS>(next, p, s, key + chunk * ROWS);
            else if (key + KEYS < s.end)
                copy_keys(next, c, p, s, key + KEYS, 0);
            ptx_cp_commit();
            if (sees)
                add_products(x, q_of_warp + at * p.stage, k_of_map + at * p.stage, c.d - dim);
            at ^= 1;
        }
        if (sees) {
            uint32_t seen[LINES];
#pragma unroll
            for (int i = 0; i < LINES; i++) {
                seen[i] = seen_sets(own[i].end, c.reach, key + lane);
#pragma unroll
                for (int j = 0; j < SETS; j++) {
                    x[i][j] = __fmul_rn(x[i][j], c.scale);
                    uint32_t bits = __float_as_uint(x[i][j]) & 0x7fffffffu;
                    if (MODE == TILE_ABSMAX && seen[i] >> j & 1)
                        absmax[i] = bits > absmax[i] ? bits : absmax[i];
                }
            }
            if (MODE == TILE_RECORD) {
                uint32_t counts[LINES];
#pragma unroll
                for (int i = 0; i < LINES; i++)
                    counts[i] = own[i].valid && (part == 0 || map == 0) ? seen[i] : 0;
                record_strips<WARP, 1, WARP>(&rec, map, warp * LINES, 1, key + lane, x, counts);
            }
            if (MODE != TILE_ABSMAX) {
#pragma unroll
                for (int i = 0; i < LINES; i++)
                    see(x[i], seen[i], c, own[i]);
                weigh(x, o, &softmax);
            }
        }
        for (int32_t set = 0, first = chunk; MODE != TILE_ABSMAX && chunk < last; chunk++) {
            if (sees && (chunk == first || chunk % PER_SET == 0)) {
                for (; set < chunk / PER_SET; set++)
#pragma unroll
                    for (int i = 0; i < LINES; i++)
                        x[i][0] = x[i][1], x[i][1] = x[i][2], x[i][2] = x[i][3];
                __syncwarp();
#pragma unroll
                for (int i = 0; i < LINES; i++)
                    weights[i * WARP + lane] = x[i][0];
                __syncwarp();
            }
            float *next = stage + (at ^ 1) * p.stage;
            int32_t k = key + chunk * ROWS;
            arrive();
            if (chunk + 1 < last)
                copy_values<COLUMNS, ROWS>(next, p, s, k + ROWS);
            else if (key + KEYS < s.end)
                copy_keys(next, c, p, s, key + KEYS, 0);
            ptx_cp_commit();
            const float *w = weights + chunk % PER_SET * ROWS;
            const float *v = stage + at * p.stage + lane * (N < 4 ? N : 4);
            if (sees && k + ROWS <= first_end && k >= last_end - c.reach)
                add_values<true, COLUMNS, ROWS>(o, w, v, own, k, c.reach);
            else if (sees && k < last_end && k + ROWS > first_end - c.reach)
                add_values<false, COLUMNS, ROWS>(o, w, v, own, k, c.reach);
            at ^= 1;
        }
    }
    ptx_cp_wait<0>();

    if (MODE == TILE_ABSMAX) {
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            uint32_t u = warp_max(absmax[i]);
            if (lane == i && own[i].valid && (part == 0 || map == 0))
                c.row_scale[own[i].row] = __uint_as_float(u);
        }
        return;
    }
    if (lane % (WARP / LINES) == 0)
        lines[warp * LINES + lane / (WARP / LINES)].sum = softmax.sum;
    __syncthreads();
    leave<MODE>(c, p, lines, &rec, &softmax, part);
    if (MODE == TILE_RECORD)
        record_flush(&rec);
    int32_t signals = min(p.signals, c.n_signals - part * p.signals);
    int32_t n_signal_warps = BLOCK_WARPS;
    if (c.n_maps == 2)
        n_signal_warps = (p.queries * p.signals + LINES - 1) / LINES;
    subtract_noise<COLUMNS>(o, c, lines, warp, signals, n_signal_warps, stage);
    if (warp < n_signal_warps)
        finish(o, c, p, s, own, block);
}

/* Norm of rows that came in several launches. */
static __global__ __launch_bounds__(BLOCK) void norm_kernel(AttnCall c)
{
    __shared__ float sums[BLOCK_WARPS];
    float *row = c.out + (int64_t)blockIdx.x * c.dv, square = 0;
    for (int32_t j = threadIdx.x; j < c.dv; j += BLOCK)
        square += row[j] * row[j];
    float rms = attn_rms(c, block_sum(square, sums));
    for (int32_t j = threadIdx.x; j < c.dv; j += BLOCK)
        row[j] = attn_normed(c, row[j], rms, j);
}

/* --- chosen rows --- */

/* A thread a key. */
static __global__ __launch_bounds__(BLOCK) void rows_kernel(AttnCall c, const AttnRow *rows,
                                                            float *x, int64_t ld, bool wide)
{
    AttnRow  row = rows[blockIdx.x];
    AttnSeen seen = attn_seen(c, row.position);
    int64_t  key = (int64_t)blockIdx.y * BLOCK + threadIdx.x;
    float    sum = 0;
    if (key >= ld)
        return;
    if (key >= seen.from && key < seen.end) {
        const float *q = c.q + attn_row(c, row.row, row.block, row.r) * c.d;
        const float *k = attn_k(c, row.sequence, attn_group(c, row.block), attn_map(c, row.r)) +
                         key * attn_k_step(c);
        if (wide)
            for (int32_t i = 0; i < c.d; i += 4) {
                float4 a = *(const float4 *)(q + i), b = *(const float4 *)(k + i);
                sum = __fmaf_rn(a.x, b.x, sum);
                sum = __fmaf_rn(a.y, b.y, sum);
                sum = __fmaf_rn(a.z, b.z, sum);
                sum = __fmaf_rn(a.w, b.w, sum);
            }
        else
            for (int32_t i = 0; i < c.d; i++)
                sum = __fmaf_rn(q[i], k[i], sum);
        sum = __fmul_rn(sum, c.scale);
    } else {
        sum = -CUDART_INF_F;
    }
    x[blockIdx.x * ld + key] = sum;
}

/* --- the host's side --- */

/* Rows of a multiple of four floats from p on begin at multiples of 16 bytes. */
static bool is_wide(const float *p, int64_t row)
{
    return (uintptr_t)p % 16 == 0 && row % 4 == 0;
}

Status cuda_attn_rows_f32(Backend *be, const Attention *a, const AttnCall *c,
                          const AttnRow *rows, int64_t n, float *x, int64_t ld)
{
    (void)a;
    dim3 grid((unsigned)n, (unsigned)ceil_div(ld, BLOCK));
    if (n == 0)
        return OK;
    rows_kernel<<<grid, BLOCK, 0, cuda_state(be)->stream>>>(
        *c, rows, x, ld, is_wide(c->q, c->d) && is_wide(c->k, c->d));
    return cuda_launched("attention rows");
}

/* Lines of a tile of so many queries: the noise begins with a warp. */
static int32_t n_lines(const AttnCall *c, int32_t signals, int32_t queries)
{
    int64_t n = ceil_div((int64_t)queries * signals, LINES) * LINES;
    return (int32_t)(c->n_maps == 2 ? n + ceil_div(queries, LINES) * LINES : n);
}

static TilePlan plan_tiles(const AttnCall *c)
{
    TilePlan p = {};
    p.n_parts = (int32_t)ceil_div(c->n_signals, MOST_SIGNALS);
    p.signals = (int32_t)ceil_div(c->n_signals, p.n_parts);
    p.queries = 1;
    while (n_lines(c, p.signals, p.queries + 1) <= ALL_LINES)
        p.queries++;
    p.wide_k = is_wide(c->q, c->d) && is_wide(c->k, c->d);
    p.wide_v = is_wide(c->v, c->dv);
    p.whole = c->dv <= MOST_COLUMNS;
    return p;
}

template <int COLUMNS, int MODE>
static Status launch(Backend *be, const AttnCall *c, TilePlan p)
{
    int64_t blocks = (int64_t)p.n_tiles * p.n_parts * c->n_blocks;
    int32_t k = c->n_key_maps * KEYS * LD_K + ALL_LINES * DIMS;
    int32_t v = COLUMNS * (COLUMNS > GROUP_COLUMNS ? 16 : 32);
    p.stage = k > v ? k : v;
    size_t shared = (2 * (size_t)p.stage + ALL_LINES * WARP) * sizeof(float);
    if (MODE == TILE_RECORD)
        shared += record_bytes(ALL_LINES, c->n_maps);
    if (blocks > INT32_MAX || shared > cuda_state(be)->shared_most)
        FAIL(ERR_UNSUPPORTED, "cuda: attention in %lld blocks with %zu bytes of shared memory",
             (long long)blocks, shared);
    CUDA_TRY(cudaFuncSetAttribute(tile_kernel<COLUMNS, MODE>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    tile_kernel<COLUMNS, MODE>
        <<<(unsigned)blocks, BLOCK, shared, cuda_state(be)->stream>>>(*c, p);
    return cuda_launched("attention in f32");
}

template <int MODE> static Status launch_columns(Backend *be, const AttnCall *c, TilePlan p)
{
    int32_t left = c->dv - p.column;
    const float *out = c->out + p.column;
    p.wide_out = left <= 64 ? (uintptr_t)out % 8 == 0 && c->dv % 2 == 0 : is_wide(out, c->dv);
    if (left <= 64)
        return launch<64, MODE>(be, c, p);
    if (left <= GROUP_COLUMNS)
        return launch<GROUP_COLUMNS, MODE>(be, c, p);
    return launch<MOST_COLUMNS, MODE>(be, c, p);
}

Status cuda_attn_f32(Backend *be, const Attention *a, const AttnCall *c, bool only_scale)
{
    TilePlan  p = plan_tiles(c);
    AttnTile *tiles;
    int64_t   n_tiles;
    TRY(cuda_attn_tiles(be, a, p.queries, &tiles, &n_tiles));
    p.tiles = tiles;
    p.n_tiles = (int32_t)n_tiles;
    if (only_scale)
        return launch<64, TILE_ABSMAX>(be, c, p);
    TRY(c->moments ? launch_columns<TILE_RECORD>(be, c, p)
                   : launch_columns<TILE_PLAIN>(be, c, p));
    for (p.column = MOST_COLUMNS; p.column < c->dv; p.column += MOST_COLUMNS)
        TRY(launch_columns<TILE_PLAIN>(be, c, p));
    if (p.whole || c->norm_eps < 0)
        return OK;
    norm_kernel<<<(unsigned)(c->n_queries * c->n_heads), BLOCK, 0, cuda_state(be)->stream>>>(*c);
    return cuda_launched("norm of heads");
}
