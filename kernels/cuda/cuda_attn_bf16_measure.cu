/* cuda_attn_bf16_measure.cu - a pass over the logits alone, in tensor cores: the largest
 * magnitude of each row, for scales of quantized logits; or all that a LogitRecord wants
 * (cuda_attn_record.cuh). Apart from the product with V, whose sums take most registers: the
 * products of q and k, done again, are few instructions beside those that record.
 * cost      2 d flops a logit; recording about 20 instructions a logit, which bound it
 * launch    as cuda_attn_bf16.cu
 * sums      cuda_attn_record.cuh; logits have the bits of cuda_attn_bf16.cu
 * NaN       as magnitude above infinity; recorded apart
 * test      tests/cuda/test_cuda_attn_bf16.c */
#include "kernels/cuda/cuda_attn_mma.cuh"
#include "kernels/cuda/cuda_attn_record.cuh"

enum { KEYS = 32 };  // of a tile: few registers

/* Blocks a multiprocessor: two where 128 registers a thread are enough. */
__host__ __device__ constexpr int blocks_of(int d)
{
    return d > 64 ? 1 : 2;
}

/* One row of a lane: [KEYS / 4] numbers, 2 of each 8 keys. */
static __device__ void split_rows(float (&row)[2][KEYS / 4], uint32_t (&allowed)[2],
                                  const float (&x)[KEYS / 8][4], const AttnCall &c,
                                  const Positions &at, int32_t key)
{
    bool all = sees_all<KEYS>(c, at, key);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        allowed[h] = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                row[h][2 * n + i] = x[n][2 * h + i];
                if (all || is_seen(c, at, key, n, 2 * h + i))
                    allowed[h] |= 1u << (2 * n + i);
            }
    }
}

template <int N>
static __device__ uint32_t largest_bits(const float (&x)[N], uint32_t allowed)
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t u = magnitude_bits(x[i]);
        most = is_in(allowed, i) && u > most ? u : most;
    }
    return most;
}

/* The four lanes of a row. */
static __device__ uint32_t quad_max(uint32_t u)
{
    u = max(u, __shfl_xor_sync((unsigned)ALL_LANES, u, 1));
    return max(u, __shfl_xor_sync((unsigned)ALL_LANES, u, 2));
}

static __device__ void put_largest(const AttnCall &c, const WarpPlace &w,
                                   const uint32_t (&most)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t u = quad_max(most[h]);
        int32_t  at = w.queries + threadIdx.x % WARP / 4 + 8 * h;
        if (w.works && threadIdx.x % 4 == 0 && at < w.tile.n_rows)
            c.row_scale[attn_row(c, w.tile.row + at, w.block, w.r)] = __uint_as_float(u);
    }
}

/* The warp's rows, by its first lanes. */
static __device__ void close_rows(const TileRecord *rec, const AttnCall &c, const WarpPlace &w,
                                  int32_t first)
{
    int32_t lane = threadIdx.x % WARP, row = w.queries + lane;
    if (lane >= GROUP || row >= w.tile.n_rows)
        return;
    AttnSeen seen = attn_seen(c, w.tile.position + row);
    int64_t  at = attn_row(c, w.tile.row + row, w.block, w.r);
    record_close(rec, first + lane, seen.end - seen.from, &c.moments[at], &c.row_absmax[at]);
}

template <int D, bool RECORD>
static __global__ void __launch_bounds__(MMA_WARPS *WARP, blocks_of(D))
measure_kernel(AttnCall c, MmaPlan p)
{
    extern __shared__ __align__(16) unsigned char shared[];
    WarpPlace     w = warp_place(c, p);
    uint32_t      bytes = c.n_key_maps * tile_bytes(D, KEYS), stage = ptx_shared(shared);
    uint32_t      keys = key_lane<D>() + (c.n_key_maps == 2 && w.map ? tile_bytes(D, KEYS) : 0);
    int32_t       key = attn_seen(c, w.tile.position).from / KEYS * KEYS;
    int32_t       end = w.tile.position + w.tile.n_rows, g = threadIdx.x % WARP / 4;
    int32_t       first = threadIdx.x / WARP * GROUP;  // row of the record
    uint32_t      q[D / 16][4], most[2] = {0, 0};
    TileRecord    rec;

    w.works = w.works && (!w.map || w.first == 0);  // a noise that pieces share tells once
    Positions at = positions_of(w);
    Rows      k = key_rows(c, p, w);
    if (RECORD)
        rec = record_open(shared + 2 * bytes, blockDim.x / WARP * GROUP, c);
    load_keys<D, KEYS>(stage, k, c.n_key_maps, key);
    ptx_cp_commit();
    load_queries<D>(q, c, w);
    for (int turn = 0; key < end; key += KEYS, turn ^= 1) {
        ptx_cp_wait<0>();
        __syncthreads();  // the tile is there, and all are done with the one before
        if (key + KEYS < end)
            load_keys<D, KEYS>(stage + (turn ^ 1) * bytes, k, c.n_key_maps, key + KEYS);
        ptx_cp_commit();
        if (!sees_any<KEYS>(c, at, key))
            continue;
        float    x[KEYS / 8][4], row[2][KEYS / 4];
        uint32_t allowed[2];
        tile_logits<D, KEYS>(x, q, stage + turn * bytes + keys, c.scale);
        split_rows(row, allowed, x, c, at, key);
        if (RECORD) {
            for (int h = 0; h < 2; h++)  // rows that are not there
                allowed[h] = w.queries + g + 8 * h < w.tile.n_rows ? allowed[h] : 0;
            record_strips<4, 2, 8>(&rec, w.map, first + g, 8, key + threadIdx.x % 4 * 2, row,
                                   allowed);
        } else {
#pragma unroll
            for (int h = 0; h < 2; h++)
                most[h] = max(most[h], largest_bits(row[h], allowed[h]));
        }
    }
    if (RECORD) {
        __syncthreads();
        record_flush(&rec);
        if (w.works)
            close_rows(&rec, c, w, first);
    } else {
        put_largest(c, w, most);
    }
}

Status cuda_attn_measure(Backend *be, const AttnCall *c, const MmaPlan *p, bool only_scale)
{
    typedef void MeasureKernel(AttnCall c, MmaPlan p);
    static MeasureKernel *const OF[2][2] = {
        {measure_kernel<64, true>, measure_kernel<64, false>},
        {measure_kernel<128, true>, measure_kernel<128, false>},
    };
    MeasureKernel *kernel = OF[p->width_k > 64][only_scale];
    int64_t        blocks = p->n_tiles * c->n_blocks * p->chunks;
    size_t bytes = 2 * c->n_key_maps * tile_bytes(p->width_k, KEYS);
    if (!only_scale)
        bytes += record_bytes(p->warps * GROUP, c->n_maps);
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)bytes));
    kernel<<<(unsigned)blocks, p->warps * WARP, bytes, cuda_state(be)->stream>>>(*c, *p);
    return cuda_launched(only_scale ? "attention: magnitudes" : "attention: recording");
}
