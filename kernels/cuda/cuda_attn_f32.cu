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
    int32_t     warp, lane;
    int32_t     first_end, last_end;  // of its warp's first and last line; 0: none is valid
} Place;

/* --- copies --- */

static __device__ inline bool tile_sees(const Tile &t, int32_t key)
{
    return key >= t.from && key < t.end;
}

/* K [maps,KEYS,LD_K] and q [ALL_LINES,DIMS] from dim `dim` on; keys that the tile does not see
 * are 0. */
static __device__ inline void copy_keys(float *to, const AttnCall &c, const TilePlan &p,
                                        const Tile &t, int32_t key, int32_t dim)
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

/* V [ROWS,COLUMNS] from key `key` on; what is not seen, or no column, is 0. */
template <int COLUMNS, int ROWS>
static __device__ inline void copy_values(float *to, const TilePlan &p, const Tile &t,
                                          int32_t key)
{
    constexpr int LINE = COLUMNS / 4;  // quads of a row
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
static __device__ inline void arrive()
{
    ptx_cp_wait<0>();
    __syncthreads();
}

/* --- over the lanes of a warp --- */

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

/* The line of which this lane has what of_line gives. */
static __device__ inline int32_t my_line()
{
    return threadIdx.x % WARP / (WARP / LINES);
}

/* What of_line gave for line i, to all lanes. */
template <class T> static __device__ inline T from_line(T x, int i)
{
    return __shfl_sync((unsigned)ALL_LANES, x, i * (WARP / LINES));
}

/* --- logits --- */

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

/* Logits quantized, through shared memory: one division in the code, not 32. */
static __device__ inline void quantize(float (&x)[LINES][SETS], const AttnCall &c,
                                       const Place &w)
{
    float *own = w.weights + w.lane;
#pragma unroll
    for (int j = 0; j < SETS; j++) {
#pragma unroll
        for (int i = 0; i < LINES; i++)
            own[i * WARP] = x[i][j];
#pragma unroll 1
        for (int i = 0; i < LINES; i++)
            own[i * WARP] = attn_quantized(own[i * WARP], c.row_scale[w.own[i].row],
                                           c.code_limit);
#pragma unroll
        for (int i = 0; i < LINES; i++)
            x[i][j] = own[i * WARP];
    }
}

/* --- softmax --- */

/* What of_line gives. */
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
            x[i][j] = attn_exp(x[i][j] - t);
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

/* --- values --- */

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

/* Of N columns of a lane, W lie side by side; the next W are GROUP_COLUMNS on. */
template <int N> __device__ constexpr int side_by_side()
{
    return N < 4 ? N : 4;
}

/* o += weights v over ROWS keys from `key` on. p [LINES,WARP] weights; v: this lane's first
 * column. ALL: every line sees every one of these keys. */
template <bool ALL, int COLUMNS, int ROWS, int N>
static __device__ inline void add_values(float (&o)[LINES][N], const float *p, const float *v,
                                         const Line *lines, int32_t key, int32_t reach)
{
    constexpr int W = side_by_side<N>();
#pragma unroll 1
    for (int k = 0; k < ROWS; k += 4) {
        float right[4][N / W][W];
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int g = 0; g < N / W; g++)
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

/* --- the end of a tile --- */

/* o of signals: A1 v - lambda A2 v. side: memory for GROUP_COLUMNS columns of the noise. */
template <int COLUMNS, int N>
static __device__ inline void subtract_noise(float (&o)[LINES][N], const AttnCall &c,
                                             const Tile &t, const Place &w, float *side)
{
    constexpr int W = side_by_side<N>();
    constexpr int LD = COLUMNS < GROUP_COLUMNS ? COLUMNS : GROUP_COLUMNS;
    const Line *own = w.own + my_line(), *noise = t.line + t.n_signal_warps * LINES;
    bool        is_noise = w.warp >= t.n_signal_warps, two = c.n_maps == 2;
    int32_t     query = (w.warp * LINES + my_line()) / t.signals;  // of the tile
    float       w0 = 0, w1 = 0, part[W];
    if (!is_noise && own->valid) {
        w0 = (float)(1 / own->sum);
        if (two)
            w1 = (float)(attn_lambda(c, own->query, attn_head(c, t.block, own->r)) /
                         noise[query].sum);
    }
#pragma unroll
    for (int g = 0; g < N; g += W) {
#pragma unroll
        for (int i = 0; i < LINES; i++) {
#pragma unroll
            for (int j = 0; j < W; j++)
                part[j] = o[i][g + j];
            if (is_noise)
                store(side + ((w.warp - t.n_signal_warps) * LINES + i) * LD + w.lane * W, part);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            float   a = from_line(w0, i), b = from_line(w1, i);
            int32_t at = from_line(query, i);
#pragma unroll
            for (int j = 0; j < W; j++)
                part[j] = 0;
            if (two && !is_noise)
                load(part, side + at * LD + w.lane * W);
#pragma unroll
            for (int j = 0; j < W; j++)
                o[i][g + j] = attn_difference(o[i][g + j], a, part[j], b);
        }
        __syncthreads();
    }
}

template <int N>
static __device__ inline void norm_lines(float (&o)[LINES][N], const AttnCall &c, const Place &w)
{
    constexpr int W = side_by_side<N>();
    float square[LINES];
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        square[i] = 0;
#pragma unroll
        for (int j = 0; j < N; j++)
            square[i] += o[i][j] * o[i][j];
    }
    float per_rms = 1 / attn_rms(c, of_line<JOIN_SUM>(square));
#pragma unroll
    for (int j = 0; j < N; j++) {
        int32_t column = j / W * GROUP_COLUMNS + w.lane * W + j % W;
        float   weight = c.norm_weight && column < c.dv ? c.norm_weight[column] : 1;
#pragma unroll
        for (int i = 0; i < LINES; i++)
            o[i][j] = o[i][j] * from_line(per_rms, i) * weight * c.out_scale;
    }
}

template <int N>
static __device__ inline void write_lines(const float (&o)[LINES][N], const AttnCall &c,
                                          const TilePlan &p, const Tile &t, const Place &w)
{
    constexpr int W = side_by_side<N>();
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        const Line &l = w.own[i];
        int64_t     head = (int64_t)l.query * c.n_heads + attn_head(c, t.block, l.r);
        float      *out = c.out + head * c.dv + p.column;
#pragma unroll
        for (int g = 0; g < N; g += W) {
            int32_t column = g / W * GROUP_COLUMNS + w.lane * W;
            float   part[W];
#pragma unroll
            for (int j = 0; j < W; j++)
                part[j] = o[i][g + j];
            if (p.wide_out && l.valid && column < t.columns)
                store(out + column, part);
#pragma unroll
            for (int j = 0; j < W; j++)
                if (!p.wide_out && l.valid && column + j < t.columns)
                    out[column + j] = part[j];
        }
    }
}

/* Is line i this block's to tell of? The noise is the first part's. */
static __device__ inline bool tells_of(const AttnCall &c, const Tile &t, const Line &l)
{
    return l.valid && (t.part == 0 || !attn_map(c, l.r));
}

/* What the second pass and the record want of the rows. */
template <int MODE>
static __device__ inline void leave_lines(const AttnCall &c, const TilePlan &p, const Tile &t,
                                          const TileRecord *rec, const Place &w,
                                          const Softmax *s)
{
    const Line &l = w.own[my_line()];
    if (w.lane % (WARP / LINES) || !tells_of(c, t, l))
        return;
    if (c.softmax && p.column == 0) {
        c.softmax[l.row].top = s->top;
        c.softmax[l.row].sum = s->sum;
    }
    if (MODE == TILE_RECORD)
        record_close(rec, w.warp * LINES + my_line(), min(l.end, c.reach), &c.moments[l.row],
                     &c.row_absmax[l.row]);
}

/* --- a tile --- */

/* Line i of the block. A warp has lines of one kind; those without a query take the last. */
static __device__ inline void set_line(Tile *to, const AttnCall &c, const AttnTile &t, int32_t i)
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
static __device__ inline void set_tile(Tile *to, const AttnCall &c, const TilePlan &p)
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

static __device__ inline Place place_of(const Tile &t, const TilePlan &p, float *shared)
{
    Place w;
    w.warp = threadIdx.x / WARP;
    w.lane = threadIdx.x % WARP;
    w.own = t.line + w.warp * LINES;
    w.stage = shared;
    w.weights = shared + 2 * p.stage + w.warp * LINES * WARP;
    w.first_end = w.own[0].valid ? w.own[0].end : 0;
    w.last_end = w.own[0].valid ? w.own[LINES - 1].end : 0;
    return w;
}

/* Does a line of the warp see one of n keys from `key` on; do all of them see all of these? */
static __device__ inline bool some_see(const AttnCall &c, const Place &w, int32_t key, int32_t n)
{
    return key < w.last_end && key + n > w.first_end - c.reach;
}

static __device__ inline bool all_see(const AttnCall &c, const Place &w, int32_t key, int32_t n)
{
    return key + n <= w.first_end && key >= w.last_end - c.reach;
}

template <int COLUMNS, int MODE>
static __global__ __launch_bounds__(BLOCK, COLUMNS > GROUP_COLUMNS || MODE == TILE_RECORD ? 1 : 2)
void tile_kernel(AttnCall c, TilePlan p)
{
    constexpr int N = COLUMNS / WARP, ROWS = COLUMNS > GROUP_COLUMNS ? 16 : 32;
    constexpr int CHUNKS = KEYS / ROWS, PER_SET = WARP / ROWS;
    extern __shared__ float4 shared[];
    __shared__ Tile t;
    set_tile(&t, c, p);
    TileRecord rec;
    if (MODE == TILE_RECORD)
        rec = record_open((float *)shared + 2 * p.stage + ALL_LINES * WARP, ALL_LINES, c);
    __syncthreads();

    const Place  w = place_of(t, p, (float *)shared);
    const int32_t map = attn_map(c, w.own[0].r);
    const int32_t k_at = ((c.n_key_maps == 2 ? map : 0) * KEYS + w.lane) * LD_K;
    const int32_t q_at = c.n_key_maps * KEYS * LD_K + w.warp * LINES * DIMS;
    float    x[LINES][SETS], o[LINES][N];
    uint32_t absmax[LINES];
    Softmax  softmax = {-CUDART_INF_F, 0};
    int32_t  at = 0;  // the stage whose chunk is next
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        absmax[i] = 0;
#pragma unroll
        for (int j = 0; j < N; j++)
            o[i][j] = 0;
    }
    int32_t key = t.from / KEYS * KEYS;
    copy_keys(w.stage, c, p, t, key, 0);
    ptx_cp_commit();
#pragma unroll 1
    for (; key < t.end; key += KEYS) {
        bool    sees = some_see(c, w, key, KEYS);
        int32_t chunk = max(t.from - key, 0) / ROWS;
        int32_t last = min((t.end - key + ROWS - 1) / ROWS, CHUNKS);
#pragma unroll
        for (int i = 0; i < LINES; i++)
#pragma unroll
            for (int j = 0; j < SETS; j++)
                x[i][j] = 0;
#pragma unroll 1
        for (int32_t dim = 0; dim < c.d; dim += DIMS) {
            bool    more = dim + DIMS < c.d;
            int32_t next = more ? key : key + KEYS;
            arrive();
            if (MODE != TILE_ABSMAX && !more)
                copy_values<COLUMNS, ROWS>(w.stage + (at ^ 1) * p.stage, p, t, key + chunk * ROWS);
            else if (next < t.end)
                copy_keys(w.stage + (at ^ 1) * p.stage, c, p, t, next, more ? dim + DIMS : 0);
            ptx_cp_commit();
            const float *stage = w.stage + at * p.stage;
            if (sees)
                add_products(x, stage + q_at, stage + k_at, c.d - dim);
            at ^= 1;
        }
        if (sees) {
            uint32_t seen[LINES];
#pragma unroll
            for (int i = 0; i < LINES; i++) {
                seen[i] = seen_sets(w.own[i].end, c.reach, key + w.lane);
#pragma unroll
                for (int j = 0; j < SETS; j++) {
                    x[i][j] = __fmul_rn(x[i][j], c.scale);
                    uint32_t bits = __float_as_uint(x[i][j]) & 0x7fffffffu;
                    if (MODE == TILE_ABSMAX && seen[i] >> j & 1)
                        absmax[i] = bits > absmax[i] ? bits : absmax[i];
                }
            }
            if (MODE == TILE_RECORD) {
                uint32_t counted[LINES];
#pragma unroll
                for (int i = 0; i < LINES; i++)
                    counted[i] = tells_of(c, t, w.own[i]) ? seen[i] : 0;
                record_strips<WARP, 1, WARP>(&rec, map, w.warp * LINES, 1, key + w.lane, x,
                                             counted);
            }
            if (MODE != TILE_ABSMAX) {
                if (c.row_scale)
                    quantize(x, c, w);
#pragma unroll
                for (int i = 0; i < LINES; i++)
#pragma unroll
                    for (int j = 0; j < SETS; j++)
                        x[i][j] = seen[i] >> j & 1 ? x[i][j] : -CUDART_INF_F;
                weigh(x, o, &softmax);
            }
        }
        int32_t set = 0, first = chunk;
#pragma unroll 1
        for (; MODE != TILE_ABSMAX && chunk < last; chunk++) {
            int32_t k = key + chunk * ROWS;
            if (sees && (chunk == first || chunk % PER_SET == 0)) {
#pragma unroll 1
                for (; set < chunk / PER_SET; set++)
#pragma unroll
                    for (int i = 0; i < LINES; i++)
                        x[i][0] = x[i][1], x[i][1] = x[i][2], x[i][2] = x[i][3];
                __syncwarp();
#pragma unroll
                for (int i = 0; i < LINES; i++)
                    w.weights[i * WARP + w.lane] = x[i][0];
                __syncwarp();
            }
            arrive();
            if (chunk + 1 < last)
                copy_values<COLUMNS, ROWS>(w.stage + (at ^ 1) * p.stage, p, t, k + ROWS);
            else if (key + KEYS < t.end)
                copy_keys(w.stage + (at ^ 1) * p.stage, c, p, t, key + KEYS, 0);
            ptx_cp_commit();
            const float *of_key = w.weights + chunk % PER_SET * ROWS;
            const float *v = w.stage + at * p.stage + w.lane * side_by_side<N>();
            if (all_see(c, w, k, ROWS))
                add_values<true, COLUMNS, ROWS>(o, of_key, v, w.own, k, c.reach);
            else if (some_see(c, w, k, ROWS))
                add_values<false, COLUMNS, ROWS>(o, of_key, v, w.own, k, c.reach);
            at ^= 1;
        }
    }

    if (MODE == TILE_ABSMAX) {
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            uint32_t u = warp_max(absmax[i]);
            if (w.lane == i && tells_of(c, t, w.own[i]))
                c.row_scale[w.own[i].row] = __uint_as_float(u);
        }
        return;
    }
    if (w.lane % (WARP / LINES) == 0)
        t.line[w.warp * LINES + my_line()].sum = softmax.sum;
    __syncthreads();
    leave_lines<MODE>(c, p, t, &rec, w, &softmax);
    if (MODE == TILE_RECORD)
        record_flush(&rec);
    subtract_noise<COLUMNS>(o, c, t, w, w.stage);
    if (w.warp >= t.n_signal_warps)
        return;
    if (p.whole && c.norm_eps >= 0)
        norm_lines(o, c, w);
    write_lines(o, c, p, t, w);
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
    p.signals = c->n_signals < MOST_SIGNALS ? c->n_signals : MOST_SIGNALS;
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
