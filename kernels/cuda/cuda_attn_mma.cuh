/* cuda_attn_mma.cuh - tiles of attention in tensor cores: who works on what, keys on their way
 * into shared memory, logits in registers.
 *
 * A warp has 16 queries of one row of q (one map of a head); the warps of a block of threads
 * are the rows of a block of heads times some groups of 16 queries, so that all of them use the
 * same tiles of K and V. Where heads share a noise map and are too many for one block, several
 * share them, each with the noise beside its signals.
 *
 * Tiles are bf16, rows padded by 16 bytes: an odd number of 16 bytes a row lets the 8 rows of an
 * ldmatrix come from all banks at once, as a swizzle would, and every address is one register
 * and a constant. Two stages: the next tile comes while this one is used.
 *
 * Fragments: cuda_ptx.cuh. Of a warp's 16 queries a lane has g and g + 8, g = lane / 4, and of
 * 8 keys 2 q and 2 q + 1, q = lane % 4. */
#ifndef DQ_CUDA_ATTN_MMA_CUH
#define DQ_CUDA_ATTN_MMA_CUH

#include <cuda_bf16.h>

#include "kernels/cuda/cuda_attn.cuh"
#include "kernels/cuda/cuda_attn_bf16.h"
#include "kernels/cuda/cuda_ptx.cuh"

enum { GROUP = 16, ROW_PAD = 8 };  // queries of a warp; bf16 behind a row in shared memory

/* Two numbers, the first in the low half; NaN stays. */
__device__ inline uint32_t bf16_pair(float a, float b)
{
    __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return (uint32_t)__bfloat16_as_ushort(p.x) | (uint32_t)__bfloat16_as_ushort(p.y) << 16;
}

/* Of a bf16 in the low half. */
__device__ inline bool is_finite_bf16(uint32_t u)
{
    return (u & 0x7f80) != 0x7f80;
}

/* --- who works on what --- */

typedef struct {
    AttnTile tile;
    int32_t  block, group, n_keys;  // of its sequence
    int32_t  first, signals;        // signals of the block of heads that are here
    int32_t  local;                 // row: signal first + local, or the noise, which is last
    int32_t  r;                     // the same among all rows of the block of heads
    int32_t  map;
    int32_t  queries;               // the warp's first, of the tile
    bool     works;                 // there are such a row and queries
} WarpPlace;

__device__ inline WarpPlace warp_place(const AttnCall &c, const MmaPlan &p)
{
    WarpPlace w;
    int32_t units = c.n_blocks * p.chunks, unit = (int32_t)(blockIdx.x % (unsigned)units);
    int32_t warp = threadIdx.x / WARP;
    w.tile = p.tiles[blockIdx.x / (unsigned)units];
    w.block = unit / p.chunks;
    w.group = attn_group(c, w.block);
    w.n_keys = c.key_start[w.tile.sequence + 1] - c.key_start[w.tile.sequence];
    w.first = unit % p.chunks * p.chunk;
    w.signals = min(p.chunk, c.n_signals - w.first);
    w.local = warp / p.groups;
    w.map = w.local == p.chunk;
    w.r = w.map ? c.n_signals : w.first + w.local;
    w.queries = warp % p.groups * GROUP;
    w.works = (w.map || w.local < w.signals) && w.queries < w.tile.n_rows;
    return w;
}

/* --- keys and values on their way --- */

/* A sequence's packed rows: one head of keys, or of values. */
typedef struct {
    const uint16_t *at;  // its first
    int64_t         map; // numbers from one map's rows to the next one's; of keys
    int32_t         n;   // rows
} Rows;

__device__ inline Rows key_rows(const AttnCall &c, const MmaPlan &p, const WarpPlace &w)
{
    int64_t row = (int64_t)w.group * c.n_key_maps * c.n_keys + c.key_start[w.tile.sequence];
    Rows    r = {p.k + row * p.width_k, c.n_keys * p.width_k, w.n_keys};
    return r;
}

__device__ inline Rows value_rows(const AttnCall &c, const MmaPlan &p, const WarpPlace &w)
{
    int64_t row = w.group * c.n_keys + c.key_start[w.tile.sequence];
    Rows    r = {p.v + row * p.width_v, 0, w.n_keys};
    return r;
}

/* Bytes of a tile. */
__host__ __device__ constexpr uint32_t tile_bytes(int32_t width, int32_t keys)
{
    return (uint32_t)(keys * (width + ROW_PAD) * 2);
}

/* Rows key .. key + KEYS of [n,WIDTH] to [KEYS, WIDTH + ROW_PAD]; behind them the last again,
 * which nobody sees there: its weight is 0, and all packed values are finite. */
template <int WIDTH, int KEYS>
__device__ inline void load_rows(uint32_t to, const Rows &rows, int32_t key)
{
    constexpr int PIECES = WIDTH / 8;
    for (int32_t i = threadIdx.x; i < KEYS * PIECES; i += blockDim.x) {
        int32_t row = i / PIECES, piece = i % PIECES;
        ptx_cp_async(to + (row * (WIDTH + ROW_PAD) + piece * 8) * 2,
                     rows.at + (int64_t)min(key + row, rows.n - 1) * WIDTH + piece * 8);
    }
}

/* The maps of a tile of keys. */
template <int D, int KEYS>
__device__ inline void load_keys(uint32_t to, Rows rows, int32_t n_maps, int32_t key)
{
    load_rows<D, KEYS>(to, rows, key);
    if (n_maps == 2) {
        rows.at += rows.map;
        load_rows<D, KEYS>(to + tile_bytes(D, KEYS), rows, key);
    }
}

/* --- logits --- */

/* One row's dims column and column + 1 of d, rounded; 0 behind them. */
__device__ inline uint32_t row_pair(const float *x, int32_t column, int32_t d)
{
    return bf16_pair(column < d ? x[column] : 0, column + 1 < d ? x[column + 1] : 0);
}

/* The warp's queries; rows that are not there are 0. */
template <int D>
__device__ inline void load_queries(uint32_t (&q)[D / 16][4], const AttnCall &c,
                                    const WarpPlace &w)
{
    int32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int32_t row = w.queries + lane / 4 + 8 * (i % 2);
        bool    there = w.works && row < w.tile.n_rows;
        const float *x = c.q + attn_row(c, w.tile.row + row, w.block, w.r) * c.d;
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            q[k][i] = there ? row_pair(x, 16 * k + 8 * (i / 2) + lane % 4 * 2, c.d) : 0;
    }
}

/* Where this lane's row of an ldmatrix of 16 keys by 16 dims begins. */
template <int D> __device__ inline uint32_t key_lane()
{
    int32_t lane = threadIdx.x % WARP;
    return (uint32_t)((lane / 16 * 8 + lane % 8) * (D + ROW_PAD) + lane / 8 % 2 * 8) * 2;
}

/* x = scale q k^T of 16 queries and KEYS keys. A logit is a chain over d in steps of 16, from
 * 0, and then one product: cuda_attn_rows_bf16 has the same. */
template <int D, int KEYS>
__device__ inline void tile_logits(float (&x)[KEYS / 8][4], const uint32_t (&q)[D / 16][4],
                                   uint32_t keys, float scale)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[n][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            ptx_ldmatrix_x4(b, keys + (n * 16 * (D + ROW_PAD) + k * 16) * 2);
            ptx_mma_bf16(x[2 * n], q[k], b[0], b[1]);
            ptx_mma_bf16(x[2 * n + 1], q[k], b[2], b[3]);
        }
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[n][i] = __fmul_rn(x[n][i], scale);
}

/* Where the warp's queries stand. */
typedef struct {
    int32_t first, last;  // of the warp, in their sequence; last < first: it has no work
    int32_t own;          // this lane's row g; the other is 8 on
} Positions;

__device__ inline Positions positions_of(const WarpPlace &w)
{
    Positions p;
    p.first = w.tile.position + w.queries;
    p.last = w.works ? w.tile.position + min(w.queries + GROUP, w.tile.n_rows) - 1 : -1;
    p.own = p.first + threadIdx.x % WARP / 4;
    return p;
}

/* Does some query see some key of the tile? Does every query see every key? */
template <int KEYS>
__device__ inline bool sees_any(const AttnCall &c, const Positions &p, int32_t key)
{
    return key <= p.last && key + KEYS > p.first + 1 - c.reach;
}

template <int KEYS>
__device__ inline bool sees_all(const AttnCall &c, const Positions &p, int32_t key)
{
    return key + KEYS - 1 <= p.first && key > p.last - c.reach;
}

/* Is x[n][i] of this lane seen? key: the tile's first. */
__device__ inline bool is_seen(const AttnCall &c, const Positions &p, int32_t key, int n, int i)
{
    int32_t back = p.own - key - threadIdx.x % 4 * 2;  // of row g from the lane's first key
    int32_t at = 8 * n + i % 2 - 8 * (i / 2);
    return at <= back && at > back - c.reach;
}

#endif
