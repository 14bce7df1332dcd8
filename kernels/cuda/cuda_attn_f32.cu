/* cuda_attn_f32.cu - tiles of attention in f32.
 * out       backend.h, Attention
 * shapes    any; a block takes up to 64 lines (cuda_attn_lines.cuh) of one block of heads and
 *           walks over its keys, 128 at a time. What does not fit goes in several: heads of
 *           more than 56 signals, columns of V beyond 256 (their logits are made again)
 * copies    16 dims of K and q, or 16 to 32 rows of V, one chunk ahead of the arithmetic
 * cost      2 R (d + dv) flops a query, block of heads and allowed key: bound by fused
 *           multiply-adds, 0.6 to 0.9 of whose time shared memory is read. 4 (K d + dv + d/2)
 *           bytes from the second-level cache for 64 lines and a key. The softmax takes as long
 *           as 30 columns of V. A single query leaves 7 lines of each warp idle: bound by the
 *           latency of chunks and by one warp's arithmetic
 * launch    256 threads; two blocks a multiprocessor up to dv 128, else one, as with a record
 * sums      f32, a chain over d a logit (the CPU's bits), a chain over keys an output, begun
 *           again from a multiple when the running maximum rises. Weights (the CPU's bits):
 *           128 in f32 as a tree, these in double. All depends on a key's place alone
 * NaN       a query's NaN stays in its row, a key's or value's in rows that see it: where a
 *           warp's lines do not all see a key, what is not seen is not even multiplied by 0
 * test      tests/cuda/test_cuda_attention.c, test_cuda_attn_record.c */
#include "kernels/cuda/cuda_attn_eight.cuh"
#include "kernels/cuda/cuda_attn_record.cuh"

/* --- a tile's keys --- */

/* Of the rows of V from `key` on, the first chunk that the tile sees. */
template <int COLUMNS> static __device__ inline int32_t first_chunk(const Tile &t, int32_t key)
{
    return max(t.from - key, 0) / chunk_rows(COLUMNS);
}

/* x = q k; at: which stage the first chunk comes to. Then the next chunk is under way: of V,
 * or of the next keys where COLUMNS is 0. */
template <int COLUMNS>
static __device__ inline void tile_logits(float (&x)[LINES][SETS], const AttnCall &c,
                                          const TilePlan &p, const Tile &t, const Place &w,
                                          int32_t key, int32_t *at)
{
    int32_t k_at = ((c.n_key_maps == 2 ? w.map : 0) * KEYS + w.lane) * LD_K;
    int32_t q_at = c.n_key_maps * KEYS * LD_K + w.warp * LINES * DIMS;
#pragma unroll
    for (int i = 0; i < LINES; i++)
#pragma unroll
        for (int j = 0; j < SETS; j++)
            x[i][j] = 0;
#pragma unroll 1
    for (int32_t dim = 0; dim < c.d; dim += DIMS) {
        const float *stage = w.stage + *at * p.stage;
        float       *other = w.stage + (*at ^ 1) * p.stage;
        bool         more = dim + DIMS < c.d;
        int32_t      next = more ? key : key + KEYS;
        arrive();
        if (COLUMNS == 0 || more) {
            if (next < t.end)
                copy_keys(other, c, p, t, next, more ? dim + DIMS : 0);
        } else if constexpr (COLUMNS > 0) {
            copy_values<COLUMNS>(other, p, t,
                                 key + first_chunk<COLUMNS>(t, key) * chunk_rows(COLUMNS));
        }
        ptx_cp_commit();
        if (some_see(c, w, key, KEYS))
            add_products(x, stage + q_at, stage + k_at, c.d - dim);
        *at ^= 1;
    }
}

/* Products to logits; which of a line's keys are seen, a bit a set. */
static __device__ inline void scale_logits(float (&x)[LINES][SETS], uint32_t (&seen)[LINES],
                                           const AttnCall &c, const Place &w, int32_t key)
{
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        seen[i] = seen_sets(w.own[i].end, c.reach, key + w.lane);
#pragma unroll
        for (int j = 0; j < SETS; j++)
            x[i][j] = __fmul_rn(x[i][j], c.scale);
    }
}

static __device__ inline void record_logits(const TileRecord *rec,
                                            const float (&x)[LINES][SETS],
                                            const uint32_t (&seen)[LINES], const AttnCall &c,
                                            const Tile &t, const Place &w, int32_t key)
{
    uint32_t counted[LINES];
#pragma unroll
    for (int i = 0; i < LINES; i++)
        counted[i] = tells_of(c, t, w.own[i]) ? seen[i] : 0;
    record_strips<WARP, 1, WARP>(rec, w.map, w.warp * LINES, 1, key + w.lane, x, counted);
}

/* Products to weights, recorded and quantized on the way. */
template <bool RECORD, int N>
static __device__ inline void tile_weights(float (&x)[LINES][SETS], float (&o)[LINES][N],
                                           Softmax *s, const TileRecord *rec,
                                           const AttnCall &c, const Tile &t, const Place &w,
                                           int32_t key)
{
    uint32_t seen[LINES];
    scale_logits(x, seen, c, w, key);
    if (RECORD)
        record_logits(rec, x, seen, c, t, w, key);
    if (c.row_scale)
        quantize(x, c, w);
#pragma unroll
    for (int i = 0; i < LINES; i++)
#pragma unroll
        for (int j = 0; j < SETS; j++)
            x[i][j] = seen[i] >> j & 1 ? x[i][j] : -CUDART_INF_F;
    weigh(x, o, s);
}

/* The weights of set `set` to where the product with V reads them, after a barrier. x moves on:
 * its first set is then that one. */
static __device__ inline void lay_weights(float (&x)[LINES][SETS], const Place &w, int32_t *at,
                                          int32_t set)
{
#pragma unroll 1
    for (; *at < set; (*at)++)
#pragma unroll
        for (int i = 0; i < LINES; i++)
            x[i][0] = x[i][1], x[i][1] = x[i][2], x[i][2] = x[i][3];
    __syncwarp();  // the set before has been read
#pragma unroll
    for (int i = 0; i < LINES; i++)
        w.weights[i * WARP + w.lane] = x[i][0];
}

/* o += weights v; the next chunk of keys, if any, is then under way. */
template <int COLUMNS, int N>
static __device__ inline void tile_values(float (&o)[LINES][N], float (&x)[LINES][SETS],
                                          const AttnCall &c, const TilePlan &p, const Tile &t,
                                          const Place &w, int32_t key, int32_t *at)
{
    constexpr int ROWS = chunk_rows(COLUMNS), PER_SET = WARP / ROWS;
    int32_t first = first_chunk<COLUMNS>(t, key), set = 0;
    int32_t end = min((t.end - key + ROWS - 1) / ROWS, KEYS / ROWS);
    bool    sees = some_see(c, w, key, KEYS);
#pragma unroll 1
    for (int32_t chunk = first; chunk < end; chunk++) {
        int32_t k = key + chunk * ROWS;
        float  *other = w.stage + (*at ^ 1) * p.stage;
        if (sees && (chunk == first || chunk % PER_SET == 0))
            lay_weights(x, w, &set, chunk / PER_SET);
        arrive();
        if (chunk + 1 < end)
            copy_values<COLUMNS>(other, p, t, k + ROWS);
        else if (key + KEYS < t.end)
            copy_keys(other, c, p, t, key + KEYS, 0);
        ptx_cp_commit();
        const float *weights = w.weights + chunk % PER_SET * ROWS;
        const float *v = w.stage + *at * p.stage + w.lane * side_by_side<N>();
        if (all_see(c, w, k, ROWS))
            add_values<true, COLUMNS>(o, weights, v, w.own, k, c.reach);
        else if (some_see(c, w, k, ROWS))
            add_values<false, COLUMNS>(o, weights, v, w.own, k, c.reach);
        *at ^= 1;
    }
}

/* --- kernels --- */

/* What the second pass and the record want of the rows. */
template <bool RECORD>
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
    if (RECORD)
        record_close(rec, w.warp * LINES + my_line(), min(l.end, c.reach), &c.moments[l.row],
                     &c.row_absmax[l.row]);
}

template <int COLUMNS, bool RECORD>
static __global__ __launch_bounds__(BLOCK, COLUMNS > GROUP_COLUMNS || RECORD ? 1 : 2)
void tile_kernel(AttnCall c, TilePlan p)
{
    constexpr int N = COLUMNS / WARP;
    extern __shared__ float4 shared[];
    __shared__ Tile t;
    TileRecord rec;
    set_tile(&t, c, p);
    if (RECORD)
        rec = record_open((float *)shared + 2 * p.stage + ALL_LINES * WARP, ALL_LINES, c);
    __syncthreads();

    const Place w = place_of(c, p, t, (float *)shared);
    float   x[LINES][SETS], o[LINES][N];
    Softmax softmax = {-CUDART_INF_F, 0};
    int32_t at = 0, key = t.from / KEYS * KEYS;
#pragma unroll
    for (int i = 0; i < LINES; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
            o[i][j] = 0;
    copy_keys(w.stage, c, p, t, key, 0);
    ptx_cp_commit();
#pragma unroll 1
    for (; key < t.end; key += KEYS) {
        tile_logits<COLUMNS>(x, c, p, t, w, key, &at);
        if (some_see(c, w, key, KEYS))
            tile_weights<RECORD>(x, o, &softmax, &rec, c, t, w, key);
        tile_values<COLUMNS>(o, x, c, p, t, w, key, &at);
    }

    if (w.lane % (WARP / LINES) == 0)
        t.line[w.warp * LINES + my_line()].sum = softmax.sum;
    __syncthreads();
    leave_lines<RECORD>(c, p, t, &rec, w, &softmax);
    if (RECORD)
        record_flush(&rec);
    subtract_noise<COLUMNS>(o, c, t, w, w.stage);
    if (w.warp >= t.n_signal_warps)
        return;
    if (p.whole && c.norm_eps >= 0)
        norm_lines(o, c, w);
    write_lines(o, c, p, t, w);
}

/* Nothing but each row's largest magnitude, NaN above infinity. */
static __global__ __launch_bounds__(BLOCK, 2) void absmax_kernel(AttnCall c, TilePlan p)
{
    extern __shared__ float4 shared[];
    __shared__ Tile t;
    set_tile(&t, c, p);
    __syncthreads();

    const Place w = place_of(c, p, t, (float *)shared);
    float    x[LINES][SETS];
    uint32_t seen[LINES], most[LINES];
    int32_t  at = 0, key = t.from / KEYS * KEYS;
#pragma unroll
    for (int i = 0; i < LINES; i++)
        most[i] = 0;
    copy_keys(w.stage, c, p, t, key, 0);
    ptx_cp_commit();
#pragma unroll 1
    for (; key < t.end; key += KEYS) {
        tile_logits<0>(x, c, p, t, w, key, &at);
        scale_logits(x, seen, c, w, key);
#pragma unroll
        for (int i = 0; i < LINES; i++)
#pragma unroll
            for (int j = 0; j < SETS; j++)
                if (seen[i] >> j & 1)
                    most[i] = max(most[i], __float_as_uint(x[i][j]) & 0x7fffffffu);
    }
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        uint32_t u = warp_max(most[i]);
        if (w.lane == i && tells_of(c, t, w.own[i]))
            c.row_scale[w.own[i].row] = __uint_as_float(u);
    }
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

/* --- the host's side --- */

static Status norm_heads(Backend *be, const AttnCall *c)
{
    int64_t rows = c->n_queries * c->n_heads;
    if (rows > INT32_MAX)
        FAIL(ERR_UNSUPPORTED, "cuda: attention norms %lld rows", (long long)rows);
    norm_kernel<<<(unsigned)rows, BLOCK, 0, cuda_state(be)->stream>>>(*c);
    return cuda_launched("norm of heads");
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
    p.wide_k = attn_is_wide(c->q, c->d, 4) && attn_is_wide(c->k, c->d, 4);
    p.wide_v = attn_is_wide(c->v, c->dv, 4);
    p.whole = c->dv <= MOST_COLUMNS;
    return p;
}

typedef void TileKernel(AttnCall, TilePlan);

/* columns: of V in a chunk; 0: none. */
static Status launch(Backend *be, const AttnCall *c, TilePlan p, TileKernel *kernel,
                     int32_t columns, bool record)
{
    int64_t blocks = (int64_t)p.n_tiles * p.n_parts * c->n_blocks;
    int32_t k = c->n_key_maps * KEYS * LD_K + ALL_LINES * DIMS;
    int32_t v = columns * chunk_rows(columns);
    p.stage = k > v ? k : v;
    size_t shared = (2 * (size_t)p.stage + ALL_LINES * WARP) * sizeof(float);
    if (record)
        shared += record_bytes(ALL_LINES, c->n_maps);
    if (blocks > INT32_MAX || shared > cuda_state(be)->shared_most)
        FAIL(ERR_UNSUPPORTED, "cuda: attention in %lld blocks with %zu bytes of shared memory",
             (long long)blocks, shared);
    CUDA_TRY(cudaFuncSetAttribute((const void *)kernel,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<(unsigned)blocks, BLOCK, shared, cuda_state(be)->stream>>>(*c, p);
    return cuda_launched("attention in f32");
}

template <bool RECORD> static Status launch_columns(Backend *be, const AttnCall *c, TilePlan p)
{
    int32_t      left = c->dv - p.column;
    const float *out = c->out + p.column;
    p.wide_out = attn_is_wide(out, c->dv, left <= 64 ? 2 : 4);
    if (left <= 64)
        return launch(be, c, p, tile_kernel<64, RECORD>, 64, RECORD);
    if (left <= GROUP_COLUMNS)
        return launch(be, c, p, tile_kernel<GROUP_COLUMNS, RECORD>, GROUP_COLUMNS, RECORD);
    return launch(be, c, p, tile_kernel<MOST_COLUMNS, RECORD>, MOST_COLUMNS, RECORD);
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
        return launch(be, c, p, absmax_kernel, 0, false);
    TRY(c->moments ? launch_columns<true>(be, c, p) : launch_columns<false>(be, c, p));
    for (p.column = MOST_COLUMNS; p.column < c->dv; p.column += MOST_COLUMNS)
        TRY(launch_columns<false>(be, c, p));
    return p.whole || c->norm_eps < 0 ? OK : norm_heads(be, c);
}
