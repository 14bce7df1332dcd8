/* cuda_attn_lines.cuh - how cuda_attn_f32.cu lays a tile out: lines of queries over the warps
 * of a block, keys over the lanes of a warp, chunks of K, q and V on their way to shared memory.
 *
 * A line is a query's row of q. A warp has eight, all of signals or all of the noise, which
 * begins with a warp: they look at the same keys, and q comes from shared memory as
 * broadcasts. Lane l has keys l, l + 32, l + 64, l + 96 of a tile for all eight lines, then
 * some columns of their outputs. So maxima, sums and weights stay within the warp, and only
 * the tiles of K and V need barriers. */
#ifndef DQ_CUDA_ATTN_LINES_CUH
#define DQ_CUDA_ATTN_LINES_CUH

#include "kernels/cuda/cuda_attn.cuh"
#include "kernels/cuda/cuda_ptx.cuh"

enum {
    LINES = 8,                            // of a warp
    SETS = 4,                             // keys of a lane, WARP apart
    KEYS = SETS * WARP,                   // of a tile
    ALL_LINES = BLOCK_WARPS * LINES,      // of a block
    DIMS = 16,                            // of a chunk of K and q
    QUADS = DIMS / 4,
    LD_K = DIMS + 4,                      // 8 keys side by side lie in 32 different banks
    GROUP_COLUMNS = 128,                  // columns that the lanes of a warp load at once
    MOST_COLUMNS = 256,
    MOST_SIGNALS = ALL_LINES - LINES      // a warp is left to the noise
};

/* A launch of up to MOST_COLUMNS columns of V. */
typedef struct {
    const AttnTile *tiles;
    int32_t n_tiles, queries;     // queries of a tile, at most
    int32_t n_parts, signals;     // signals of a block's part, at most
    int32_t column;               // the first
    int32_t stage;                // floats of a chunk's place
    bool    wide_k, wide_v, wide_out;  // rows begin where whole vectors may
    bool    whole;                // all columns at once: norms are made here
} TilePlan;

/* A row of logits. */
typedef struct {
    int64_t row;      // of [T,B,R]
    double  sum;      // of its weights, at the end
    int32_t query;    // of all
    int32_t r;
    int32_t end;      // keys that it sees end here
    bool    valid;    // else the last query's again, for nothing
} Line;

/* What is the same for all threads of a block: in shared memory, to spare registers. */
typedef struct {
    Line         line[ALL_LINES];
    const float *k, *v;           // of the sequence's first key
    int64_t      k_step, v_step;
    int32_t      from, end;       // keys that the tile sees
    int32_t      columns;         // of V
    int32_t      block, part;     // of heads
    int32_t      signals;         // of the part
    int32_t      n_signal_warps;
} Tile;

/* A thread's place. */
typedef struct {
    const Line *own;              // its warp's
    float      *stage;            // two chunks
    float      *weights;          // [LINES,WARP] of its warp
    int32_t     warp, lane, map;
    int32_t     first_end, last_end;  // of its warp's first and last line; 0: none is valid
} Place;

/* --- where things are --- */

/* Line i of the block. A warp has lines of one kind; those without a query take the last. */
__device__ inline void set_line(Tile *to, const AttnCall &c, const AttnTile &t, int32_t i)
{
    int32_t first = to->n_signal_warps * LINES;
    bool    noise = i >= first;
    int32_t at = noise ? i - first : i, each = noise ? 1 : to->signals;
    Line   *l = &to->line[i];
    l->valid = at / each < t.n_rows;
    l->r = noise ? c.n_signals : to->part * MOST_SIGNALS + at % each;
    l->query = t.row + min(at / each, t.n_rows - 1);
    l->end = t.position + l->query - t.row + 1;
    l->row = attn_row(c, l->query, to->block, l->r);
}

/* By all threads; a barrier must follow. */
__device__ inline void set_tile(Tile *to, const AttnCall &c, const TilePlan &p)
{
    AttnTile t = p.tiles[blockIdx.x % (unsigned)p.n_tiles];
    int32_t  work = (int32_t)(blockIdx.x / (unsigned)p.n_tiles);
    if (threadIdx.x == 0) {
        to->block = work / p.n_parts;
        to->part = work % p.n_parts;
        int32_t group = attn_group(c, to->block);
        to->signals = min(MOST_SIGNALS, c.n_signals - to->part * MOST_SIGNALS);
        to->n_signal_warps = BLOCK_WARPS;
        if (c.n_maps == 2)
            to->n_signal_warps = (p.queries * p.signals + LINES - 1) / LINES;
        to->k = attn_k(c, t.sequence, group, 0);
        to->v = attn_v(c, t.sequence, group) + p.column;
        to->k_step = attn_k_step(c);
        to->v_step = attn_v_step(c);
        to->from = attn_seen(c, t.position).from;
        to->end = t.position + t.n_rows;
        to->columns = min(c.dv - p.column, MOST_COLUMNS);
    }
    __syncthreads();
    if (threadIdx.x < ALL_LINES)
        set_line(to, c, t, threadIdx.x);
}

__device__ inline Place place_of(const AttnCall &c, const TilePlan &p, const Tile &t,
                                 float *shared)
{
    Place w;
    w.warp = threadIdx.x / WARP;
    w.lane = threadIdx.x % WARP;
    w.own = t.line + w.warp * LINES;
    w.map = attn_map(c, w.own[0].r);
    w.stage = shared;
    w.weights = shared + 2 * p.stage + w.warp * LINES * WARP;
    w.first_end = w.own[0].valid ? w.own[0].end : 0;
    w.last_end = w.own[0].valid ? w.own[LINES - 1].end : 0;
    return w;
}

/* Does a line of the warp see one of n keys from `key` on; do all of them see all of these? */
__device__ inline bool some_see(const AttnCall &c, const Place &w, int32_t key, int32_t n)
{
    return key < w.last_end && key + n > w.first_end - c.reach;
}

__device__ inline bool all_see(const AttnCall &c, const Place &w, int32_t key, int32_t n)
{
    return key + n <= w.first_end && key >= w.last_end - c.reach;
}

/* Is line l this block's to tell of? The noise is the first part's. */
__device__ inline bool tells_of(const AttnCall &c, const Tile &t, const Line &l)
{
    return l.valid && (t.part == 0 || !attn_map(c, l.r));
}

/* --- copies --- */

__device__ inline bool tile_sees(const Tile &t, int32_t key)
{
    return key >= t.from && key < t.end;
}

/* K [maps,KEYS,LD_K] and q [ALL_LINES,DIMS] from dim `dim` on; keys that the tile does not see
 * are 0. */
__device__ inline void copy_keys(float *to, const AttnCall &c, const TilePlan &p, const Tile &t,
                                 int32_t key, int32_t dim)
{
    int32_t line = threadIdx.x / QUADS;
    int32_t n = c.d - dim - threadIdx.x % QUADS * 4;  // dims that are left from this quad on
    float  *q_to = to + c.n_key_maps * KEYS * LD_K + threadIdx.x * 4;
    if (n <= 0)
        return;
    to += line * LD_K + threadIdx.x % QUADS * 4;
    const float *q = c.q + t.line[line].row * c.d + (c.d - n);
    const float *k = t.k + (c.d - n);
    if (p.wide_k) {
        ptx_cp_async(ptx_shared(q_to), q);
#pragma unroll
        for (int32_t i = 0; i < KEYS; i += ALL_LINES) {
            bool         in = tile_sees(t, key + line + i);
            const float *from = in ? k + (key + line + i) * t.k_step : t.k;
            ptx_cp_async_some(ptx_shared(to + i * LD_K), from, in ? 16 : 0);
            if (c.n_key_maps == 2)
                ptx_cp_async_some(ptx_shared(to + (KEYS + i) * LD_K), from + c.d, in ? 16 : 0);
        }
        return;
    }
#pragma unroll 1
    for (int32_t j = 0; j < 4; j++) {
        q_to[j] = j < n ? q[j] : 0;
#pragma unroll 1
        for (int32_t i = 0; i < c.n_key_maps * KEYS; i += ALL_LINES) {
            int32_t s = key + line + i % KEYS;
            bool    in = tile_sees(t, s) && j < n;
            to[i * LD_K + j] = in ? k[s * t.k_step + (int64_t)(i / KEYS) * c.d + j] : 0;
        }
    }
}

/* Rows of V in a chunk. */
__host__ __device__ constexpr int chunk_rows(int columns)
{
    return columns > GROUP_COLUMNS ? 16 : 32;
}

/* V [ROWS,COLUMNS] from key `key` on; what is not seen, or no column, is 0. */
template <int COLUMNS>
__device__ inline void copy_values(float *to, const TilePlan &p, const Tile &t, int32_t key)
{
    constexpr int LINE = COLUMNS / 4, ROWS = chunk_rows(COLUMNS);  // quads of a row
    int32_t quad = threadIdx.x % LINE, n = t.columns - 4 * quad;
    key += threadIdx.x / LINE;
    to += threadIdx.x * 4;
#pragma unroll
    for (int32_t i = 0; i < ROWS; i += BLOCK / LINE) {
        bool         in = tile_sees(t, key + i) && n > 0;
        const float *from = in ? t.v + (key + i) * t.v_step + 4 * quad : t.v;
        if (p.wide_v)
            ptx_cp_async_some(ptx_shared(to + i * COLUMNS), from, in ? 16 : 0);
        else
#pragma unroll 1
            for (int32_t j = 0; j < 4; j++)
                to[i * COLUMNS + j] = in && j < n ? from[j] : 0;
    }
}

/* The chunk under way is there, and all are done with the one before. */
__device__ inline void arrive()
{
    ptx_cp_wait<0>();
    __syncthreads();
}

/* --- over the lanes of a warp --- */

enum { JOIN_MAX, JOIN_SUM };

template <int HOW> __device__ inline float join(float a, float b)
{
    return HOW == JOIN_MAX ? fmaxf(a, b) : a + b;  // a maximum passes over NaN
}

/* v[i] of line i over all lanes: lane l gets that of line l / 4. A tree, the same for any
 * line. */
template <int HOW> __device__ inline float of_line(float (&v)[LINES])
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

/* The line of which this lane has what of_line gives. */
__device__ inline int32_t my_line()
{
    return threadIdx.x % WARP / (WARP / LINES);
}

/* What of_line gave for line i, to all lanes. */
template <class T> __device__ inline T from_line(T x, int i)
{
    return __shfl_sync((unsigned)ALL_LANES, x, i * (WARP / LINES));
}

#endif
