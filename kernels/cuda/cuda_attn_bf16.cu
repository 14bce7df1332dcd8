/* cuda_attn_bf16.cu - attention in tensor cores: softmax(q k^T) v, and the finish of a head.
 * out       backend.h, Attention, with DTYPE_BF16: q, k, v are rounded once, logits are f32,
 *           weights are rounded where they meet v and summed as they were
 * shapes    d up to 128, dv up to 256, padded to D in {64, 128} and DV in {64, 128, 256}; wider
 *           ones by cuda_attn_bf16_plain.cu. Any T, S >= T, reach, heads, signals
 * cost      2 (D + DV) flops a row of q and key that its tile sees; 2 (K D + DV) bytes of the
 *           second-level cache a key and block: with 8 warps, 128 rows, 64 flops a byte where
 *           all look at one map. A warp's 16 queries by 64 keys of D 64 and DV 128, on sm_80:
 *           96 mma, 768 clocks of its tensor core; 48 ldmatrix, 192 clocks of shared memory
 *           that four times as many warps share: as long; about 600 instructions of softmax.
 *           Bound by all three alike, half of the peak at best
 * launch    up to 8 warps a tile of queries and block of heads, most keys first; as many warps
 *           run on a multiprocessor, by their registers. KB of shared memory with one map of K,
 *           with two (or what the noise takes); registers on sm_80, sm_90:
 *                D   DV  KEYS  one  two  registers
 *                64   64   64   36   54  153  156
 *                64  128   64   52   70  191  195
 *                64  256   32   42   67  240  244
 *               128   64   64   52   86  168  182
 *               128  128   64   68  102  207  211    two: 99 KB of some GPUs take DV 256
 *               128  256   32   50   67  244  244
 * sums      f32 over 16 keys at a time, in order of keys, begun again from a multiple where
 *           the running maximum rises: a row's figures depend on its keys alone. Weights in
 *           f32 over a lane's keys of a tile, then double, then four lanes
 * NaN       stays in the rows that see it. 0 times the infinity of a key not seen would be NaN:
 *           values that are not finite are left out of the product, and added one by one
 * test      tests/cuda/test_cuda_attn_bf16.c */
#include "kernels/cuda/cuda_attn_softmax.cuh"

/* Keys of a tile: where sums take many registers, fewer. */
__host__ __device__ constexpr int keys_of(int dv)
{
    return dv > 128 ? 32 : 64;
}

/* Bytes of a stage: the maps of K, then V. */
__host__ __device__ constexpr uint32_t stage_bytes(int d, int dv, int n_key_maps)
{
    return (uint32_t)n_key_maps * tile_bytes(d, keys_of(dv)) + tile_bytes(dv, keys_of(dv));
}

template <int D, int DV>
static __device__ void load_stage(uint32_t to, const Rows &k, const Rows &v, int32_t n_key_maps,
                                  int32_t key)
{
    load_keys<D, keys_of(DV)>(to, k, n_key_maps, key);
    load_rows<DV, keys_of(DV)>(to + n_key_maps * tile_bytes(D, keys_of(DV)), v, key);
    ptx_cp_commit();
}

template <int D, int DV, bool QUANTIZED>
static __global__ void __launch_bounds__(MMA_WARPS *WARP, 1) attend_kernel(AttnCall c, MmaPlan p)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ WarpPlace places[MMA_WARPS];  // not in registers while the loop needs them
    constexpr int KEYS = keys_of(DV);
    WarpPlace     w = warp_place(c, p);
    WarpPlace    *place = &places[threadIdx.x / WARP];
    Positions     at = positions_of(w);
    Rows          k = key_rows(c, p, w), v = value_rows(c, p, w);
    uint32_t      bytes = stage_bytes(D, DV, c.n_key_maps), stage = ptx_shared(shared);
    uint32_t      keys = key_lane<D>() + (c.n_key_maps == 2 && w.map ? tile_bytes(D, KEYS) : 0);
    uint32_t      values = value_lane<DV>() + c.n_key_maps * tile_bytes(D, KEYS);
    int32_t       key = attn_seen(c, w.tile.position).from / KEYS * KEYS;
    int32_t       end = w.tile.position + w.tile.n_rows;
    bool          odd = p.odd[0];
    uint32_t      q[D / 16][4];
    float         o[DV / 8][4], scale[2] = {0, 0};
    LaneRows      r = begin_rows();

    load_stage<D, DV>(stage, k, v, c.n_key_maps, key);
    load_queries<D>(q, c, w);
    if (QUANTIZED && w.works)
        for (int h = 0; h < 2; h++)
            scale[h] = c.row_scale[attn_row(c, query_of(w, h), w.block, w.r)];
    if (threadIdx.x % WARP == 0)
        *place = w;
#pragma unroll
    for (int n = 0; n < DV / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[n][i] = 0;

    for (int turn = 0; key < end; key += KEYS, turn ^= 1) {
        uint32_t here = stage + turn * bytes;
        ptx_cp_wait<0>();
        __syncthreads();  // the tile is there, and all are done with the one before
        if (key + KEYS < end)
            load_stage<D, DV>(stage + (turn ^ 1) * bytes, k, v, c.n_key_maps, key + KEYS);
        if (!sees_any<KEYS>(c, at, key))
            continue;
        float    x[KEYS / 8][4], keep[2];
        uint32_t weights[KEYS / 16][4];
        tile_logits<D, KEYS>(x, q, here + keys, c.scale);
        if (QUANTIZED)
            quantize_tile<KEYS>(x, scale, c.code_limit);
        if (!sees_all<KEYS>(c, at, key))
            mask_tile<KEYS>(x, c, at, key);
        weigh_tile<KEYS>(x, &r, keep);
        keep_sums<DV>(o, keep);
        round_weights<KEYS>(weights, x);
        add_values<DV, KEYS>(o, weights, here + values);
        if (odd && has_odd(c, p, *place, key, KEYS))
            add_odd_values<DV, KEYS>(o, weights, c, *place, at, key);
    }

    __syncthreads();
    w = *place;
    Noise<DV> *noise = (Noise<DV> *)shared + w.queries / GROUP;
    float      squares[2];
    close_softmax(c, w, &r);
    if (w.works && w.map)
        give_noise<DV>(noise, o, r);
    __syncthreads();
    if (w.works && !w.map) {
        subtract_noise<DV>(c, w, o, r, noise, squares);
        put_rows<DV>(c, w, o, squares);
    }
}

/* --- the call --- */

typedef void AttendKernel(AttnCall c, MmaPlan p);

/* A pair of widths that there is a kernel for. */
typedef struct {
    int           d, dv;
    AttendKernel *kernel[2];  // plain, quantized
} Instance;

#define INSTANCE(d, dv) {d, dv, {attend_kernel<d, dv, false>, attend_kernel<d, dv, true>}}
static const Instance INSTANCES[] = {
    INSTANCE(64, 64),  INSTANCE(64, 128),  INSTANCE(64, 256),
    INSTANCE(128, 64), INSTANCE(128, 128), INSTANCE(128, 256),
};
enum { N_INSTANCES = sizeof INSTANCES / sizeof *INSTANCES };

/* Shared memory of a block. */
static size_t shared_bytes(const AttnCall *c, const Instance *i, int32_t groups)
{
    size_t row = (size_t)(i->dv + ROW_PAD) * sizeof(float) + sizeof(double);
    size_t noise = c->n_maps == 2 ? (size_t)groups * GROUP * row : 0;
    size_t stages = 2 * stage_bytes(i->d, i->dv, c->n_key_maps);
    return stages > noise ? stages : noise;
}

/* Queries of a block: as many as 8 warps hold, fewer while blocks are; figures of a row do not
 * depend on it. */
static void plan_blocks(Backend *be, const Attention *a, const AttnCall *c, MmaPlan *p)
{
    int32_t noise = c->n_maps == 2, least = 1;
    p->chunks = (int32_t)ceil_div(c->n_signals, MMA_WARPS - noise);
    p->chunk = (int32_t)ceil_div(c->n_signals, p->chunks);
    int32_t rows = p->chunk + noise;
    while (least * rows < MMA_WARPS / 2)
        least++;
    for (p->groups = MMA_WARPS / rows; p->groups > least; p->groups = (p->groups + 1) / 2) {
        int64_t tiles = 0;
        for (int64_t b = 0; b < a->batch.n_sequences; b++)
            tiles += ceil_div(a->batch.start[b + 1] - a->batch.start[b], GROUP * p->groups);
        if (tiles * c->n_blocks * p->chunks >= 2 * cuda_state(be)->n_multiprocessors)
            break;
    }
    p->warps = rows * p->groups;
}

/* The narrowest that holds the call; NULL: none does. */
static const Instance *choose(Backend *be, const AttnCall *c, int32_t groups)
{
    size_t room = cuda_state(be)->shared_most - MMA_WARPS * sizeof(WarpPlace);
    for (int i = 0; i < N_INSTANCES; i++)
        if (INSTANCES[i].d >= c->d && INSTANCES[i].dv >= c->dv &&
            shared_bytes(c, &INSTANCES[i], groups) <= room)
            return &INSTANCES[i];
    return NULL;
}

static Status attend(Backend *be, const AttnCall *c, const MmaPlan *p, const Instance *i)
{
    AttendKernel *kernel = i->kernel[c->row_scale != NULL];
    size_t        bytes = shared_bytes(c, i, p->groups);
    int64_t       blocks = p->n_tiles * c->n_blocks * p->chunks;
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)bytes));
    kernel<<<(unsigned)blocks, p->warps * WARP, bytes, cuda_state(be)->stream>>>(*c, *p);
    return cuda_launched("attention");
}

Status cuda_attn_bf16(Backend *be, const Attention *a, const AttnCall *c, bool only_scale)
{
    MmaPlan   p = {};
    AttnTile *tiles;
    plan_blocks(be, a, c, &p);
    const Instance *i = choose(be, c, p.groups);
    if (!i)
        return cuda_attn_bf16_plain(be, a, c, only_scale);
    TRY(cuda_attn_tiles(be, a, GROUP * p.groups, &tiles, &p.n_tiles));
    if (p.n_tiles == 0)
        return OK;
    p.tiles = tiles;
    p.width_k = i->d;
    p.width_v = i->dv;
    TRY(cuda_attn_pack_keys(be, c, &p));
    if (only_scale || c->moments)
        TRY(cuda_attn_measure(be, c, &p, only_scale));
    if (only_scale)
        return OK;
    TRY(cuda_attn_pack_values(be, c, &p));
    return attend(be, c, &p, i);
}
