/* cuda_codes_mma.cu - many rows times codes in tensor cores, weights decoded on their way.
 * y[t,n] = sum_k bf16(x[t,k]) bf16(scale[n,g] code[n,k] + offset[n,g]) + bias[n]
 * shapes  x [T,K], y [T,N] f32; bricks of cuda_codes.h
 * cost    2 T N K flops; each weight is decoded ceil(T / rows) times, about 5 instructions. For
 *         16 inputs a warp of 128 rows x 32 outputs has 32 mma, 256 cycles of an A100's tensor
 *         cores, beside some 140 other instructions: bound by the tensor cores. Few rows:
 *         bits / 8 bytes a weight
 * launch  a block of 4 warps a tile of 32, 64 or 128 rows x 128 outputs, a warp a strip; K in
 *         slices until there are some 160 blocks. Rows of x are shared by the block, 3 or 4
 *         bricks in flight; codes and scales are each thread's own. Neighbouring blocks take
 *         the same weights
 * sums    f32, over K in order in steps of 16, then slices: T, N and K decide
 * NaN     any NaN in row t makes row t NaN
 * test    tests/cuda/test_cuda_codes.c */
#include "kernels/cuda/cuda_codes.cuh"

enum {
    ROW_VECS = CODES_STEP / 8, AT_ONCE = CODES_THREADS / ROW_VECS,  // rows of x
    WANTED_BLOCKS = 160, LEAST_BRICKS = 8
};

/* ROWS of x in vectors of 16 bytes, then what a thread has of its strip: codes, scales and
 * offsets of its four outputs. */
template <int BITS, int ROWS> struct Stage {
    static constexpr int COUNT = ROWS == 128 ? 3 : 4;
    static constexpr int CODES = BITS / 2;
    static constexpr int MINE = ROWS * ROW_VECS;
    static constexpr int VECS = MINE + (CODES + 2) * CODES_THREADS;
    static constexpr size_t BYTES = (size_t)COUNT * VECS * 16;
};

/* Of one slice of one tile. */
typedef struct {
    const uint4 *x;       // [T up to ROWS,k_pad] bf16 as fragments count inputs
    float       *parts;   // [n_slices,T,n] or NULL: into y
    int64_t      bricks;  // of a slice
    int64_t      T;
    unsigned     row_tiles, output_tiles;
} Tiles;

/* Eight neighbours in a row of x stand together; which of the row's places they have changes
 * from row to row, so that ldmatrix meets no bank twice. */
static __device__ inline int x_place(int row, int vec)
{
    return row * ROW_VECS + (vec ^ row % ROW_VECS);
}

template <int BITS, int ROWS>
static __device__ inline void fetch(uint4 *stage, const CodesView &w, const Tiles &r,
                                    const CodesTile &tile, int64_t brick)
{
    typedef Stage<BITS, ROWS> S;
    int lane = threadIdx.x % WARP;
    int          row = threadIdx.x / ROW_VECS, vec = threadIdx.x % ROW_VECS;
    const uint4 *x = r.x + ((tile.row + row) * w.n_bricks + brick) * ROW_VECS + vec;
#pragma unroll
    for (int i = 0; i < ROWS; i += AT_ONCE)
        ptx_cp_async(ptx_shared(stage + x_place(row + i, vec)),
                     x + (int64_t)i * w.n_bricks * ROW_VECS);
    uint32_t     mine = ptx_shared(stage + S::MINE + threadIdx.x);
    const uint4 *from = w.bricks + tile.strip * w.strip_vecs + brick * (BITS * 16) + lane;
    int64_t      at = codes_group(w, (uint32_t)brick * 4 + lane % 4) * w.n_pad +
                      tile.strip * CODES_STRIP + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < S::CODES; i++)
        ptx_cp_async(mine + i * CODES_THREADS * 16, from + i * WARP);
    ptx_cp_async(mine + S::CODES * CODES_THREADS * 16, w.scales + at);
    if (w.offsets)
        ptx_cp_async(mine + (S::CODES + 1) * CODES_THREADS * 16, w.offsets + at);
}

/* The lane's weights of half a brick's steps: b[i] of output 4c + i. */
template <int BITS>
static __device__ inline void decode(uint32_t (&b)[4][4], const uint4 *mine, bool offsets,
                                     int half)
{
    uint32_t words[2 * BITS];
    float4   scale = *(const float4 *)(mine + BITS / 2 * CODES_THREADS);
    float4   offset = make_float4(CODES_NO_OFFSET, CODES_NO_OFFSET, CODES_NO_OFFSET,
                                  CODES_NO_OFFSET);
    if (offsets)
        offset = *(const float4 *)(mine + (BITS / 2 + 1) * CODES_THREADS);
#pragma unroll
    for (int i = 0; i < BITS / 2; i++)
        put_four(words + 4 * i, mine[i * CODES_THREADS]);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[i][j] = codes_weights(codes_pair<BITS>(words + i * (BITS / 2), 4 * half + j),
                                    of_four(scale, i), of_four(offset, i));
}

/* c[m][i]: rows 16m .., outputs i of all lanes. Sums fill half of the registers: no more than
 * half of a brick is decoded at a time. */
template <int BITS, int ROWS>
static __device__ inline void multiply(float (&c)[ROWS / 16][4][4], const uint4 *stage,
                                       bool offsets)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t b[4][4];
        decode<BITS>(b, stage + Stage<BITS, ROWS>::MINE + threadIdx.x, offsets, half);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int m = 0; m < ROWS / 16; m++) {
                uint32_t a[4];
                ptx_ldmatrix_x4(a, ptx_shared(stage + x_place(16 * m + lane % 16,
                                                              4 * half + 2 * s + lane / 16)));
#pragma unroll
                for (int i = 0; i < 4; i++)
                    ptx_mma_bf16(c[m][i], a, b[i][2 * s], b[i][2 * s + 1]);
            }
    }
}

/* Outputs n .. n + 7 of a row. */
static __device__ inline void write_eight(float *row, int64_t n, const CodesView &w,
                                          bool add_bias, const float (&v)[8])
{
    float out[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = add_bias && n + i < w.n ? v[i] + w.bias[n + i] : v[i];
    if (n + 8 <= w.n && (uintptr_t)(row + n) % sizeof(float4) == 0) {
        *(float4 *)(row + n) = make_float4(out[0], out[1], out[2], out[3]);
        *(float4 *)(row + n + 4) = make_float4(out[4], out[5], out[6], out[7]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (n + i < w.n)
            row[n + i] = out[i];
}

/* C has columns 2q and 2q + 1: outputs 8q + i and 8q + 4 + i of the strip. */
template <int ROWS>
static __device__ inline void write(float *y, int64_t ldy, const float (&c)[ROWS / 16][4][4],
                                    const CodesView &w, const Tiles &r, const CodesTile &tile)
{
    int     lane = threadIdx.x % WARP;
    int64_t n = tile.n + lane % 4 * 8;
#pragma unroll
    for (int m = 0; m < ROWS / 16; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t t = tile.row + 16 * m + 8 * half + lane / 4;
            float   v[8];
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = c[m][i % 4][2 * half + i / 4];
            if (t >= r.T)
                continue;
            if (r.parts)
                write_eight(r.parts + (tile.slice * r.T + t) * w.n, n, w, false, v);
            else
                write_eight(y + t * ldy, n, w, w.bias != NULL, v);
        }
}

template <int BITS, int ROWS>
static __global__ void __launch_bounds__(CODES_THREADS, ROWS == 128 ? 2 : 3)
tiles_kernel(float *y, int64_t ldy, const CodesView w, const Tiles r)
{
    typedef Stage<BITS, ROWS> S;
    extern __shared__ uint4 stages[];
    CodesTile tile = codes_tile(w, ROWS, r.row_tiles, r.output_tiles, r.bricks);
    int64_t   brick = tile.brick;
    float     c[ROWS / 16][4][4] = {};
#pragma unroll
    for (int i = 0; i < S::COUNT - 1; i++) {
        if (brick + i < tile.end)
            fetch<BITS, ROWS>(stages + i * S::VECS, w, r, tile, brick + i);
        ptx_cp_commit();
    }
    for (int at = 0; brick < tile.end; brick++, at = (at + 1) % S::COUNT) {
        ptx_cp_wait<S::COUNT - 2>();
        __syncthreads();  // all have it, and are done with the stage to fill next
        if (brick + S::COUNT - 1 < tile.end)
            fetch<BITS, ROWS>(stages + (at + S::COUNT - 1) % S::COUNT * S::VECS, w, r, tile,
                              brick + S::COUNT - 1);
        ptx_cp_commit();
        multiply<BITS, ROWS>(c, stages + at * S::VECS, w.offsets != NULL);
    }
    write<ROWS>(y, ldy, c, w, r, tile);
}

/* --- launches --- */

template <int BITS, int ROWS>
static Status launch(Backend *be, const CodesProduct *p, const Tiles *r, unsigned blocks)
{
    typedef Stage<BITS, ROWS> S;
    TRY(codes_shared(be, (const void *)tiles_kernel<BITS, ROWS>, S::BYTES));
    tiles_kernel<BITS, ROWS><<<blocks, CODES_THREADS, S::BYTES, cuda_state(be)->stream>>>(
        p->y, p->ldy, p->w, *r);
    return cuda_launched("tiles of codes");
}

template <int ROWS> static Status run(Backend *be, const CodesProduct *p)
{
    Tiles r = {};
    void *x, *parts;
    r.T = p->T;
    r.row_tiles = (unsigned)ceil_div(p->T, ROWS);
    r.output_tiles = (unsigned)ceil_div(p->w.n, CODES_OUTPUTS);
    int64_t     tiles = (int64_t)r.row_tiles * r.output_tiles;
    CodesSlices s = codes_slices(p->w.n_bricks, tiles, WANTED_BLOCKS, LEAST_BRICKS);
    TRY(codes_inputs(be, &x, p, CODES_X_FRAGMENTS, (int64_t)r.row_tiles * ROWS));
    r.x = (const uint4 *)x;
    r.bricks = s.bricks;
    if (s.n_slices > 1) {
        TRY(cuda_scratch(be, &parts, (size_t)(s.n_slices * p->T * p->w.n) * sizeof(float)));
        r.parts = (float *)parts;
    }
    unsigned blocks = (unsigned)(tiles * s.n_slices);
    if (p->bits == 4)
        TRY((launch<4, ROWS>(be, p, &r, blocks)));
    else if (p->bits == 6)
        TRY((launch<6, ROWS>(be, p, &r, blocks)));
    else
        TRY((launch<8, ROWS>(be, p, &r, blocks)));
    return s.n_slices > 1 ? codes_add_slices(be, p, r.parts, s.n_slices) : OK;
}

Status codes_tiles(Backend *be, const CodesProduct *p)
{
    if (p->T <= 32)
        return run<32>(be, p);
    return p->T <= 64 ? run<64>(be, p) : run<128>(be, p);
}
