/* cuda_int8.cu - linear layers whose weights and inputs are both codes of 8 bits (w8a8).
 * y[t,n] = sx[t] (sw[n] sum_k a[t,k] code[n,k]) + bias[n]
 * shapes  a [T,k_pad] int8 and sx [T] of cuda_twin.h, y [T,N] f32; bricks of cuda_codes.h
 * cost    2 T N K operations of int8, of which tensor cores do two in the time of one of bf16;
 *         nothing is unpacked: bound by the tensor cores
 * launch  as cuda_codes_mma.cu: a block of 4 warps a tile of 32 or 128 rows x 128 outputs, a
 *         warp a strip, slices of K
 * sums    int32, exact; then one conversion and two products in f32, whatever the Linear's
 *         dtype. Of decoded weights and inputs in bf16 each number would be rounded: results
 *         differ from the CPU's by that
 * NaN     a row that has become NaN has the scale NaN
 * test    tests/cuda/test_cuda_int8.c */
#include "kernels/cuda/cuda_int8.h"


enum {
    ROW_VECS = CODES_STEP / 16, PIECES = 4, STAGES = 4, WANTED_BLOCKS = 160, LEAST_BRICKS = 16
};

/* ROWS of a in vectors of 16 bytes, then each thread's codes of its four outputs. */
template <int ROWS> struct Stage {
    static constexpr int MINE = ROWS * ROW_VECS;
    static constexpr int VECS = MINE + PIECES * CODES_THREADS;
    static constexpr size_t BYTES = (size_t)STAGES * VECS * 16;
};

typedef struct {
    const uint4 *a;       // [T,k_pad] codes
    const float *scales;  // [T]
    int32_t     *parts;   // [n_slices,T,n] or NULL: into y
    int64_t      bricks;  // of a slice
    int64_t      T;
    unsigned     row_tiles, output_tiles;
} Tiles;

/* Two rows fill the banks: every other one has its vectors in another order. */
static __device__ inline int a_place(int row, int vec)
{
    return row * ROW_VECS + (vec ^ row / 2 % ROW_VECS);
}

template <int ROWS>
static __device__ inline void fetch(uint4 *stage, const CodesView &w, const Tiles &r,
                                    const CodesTile &tile, int64_t brick)
{
#pragma unroll
    for (int i = 0; i < ROWS * ROW_VECS / CODES_THREADS; i++) {
        int     at = i * CODES_THREADS + threadIdx.x, row = at / ROW_VECS, vec = at % ROW_VECS;
        int64_t t = min(tile.row + row, r.T - 1);  // rows past T are not written
        ptx_cp_async(ptx_shared(stage + a_place(row, vec)),
                     r.a + (t * w.n_bricks + brick) * ROW_VECS + vec);
    }
    uint32_t     mine = ptx_shared(stage + Stage<ROWS>::MINE + threadIdx.x);
    const uint4 *from = w.bricks + tile.strip * w.strip_vecs + brick * (8 * 16) +
                        threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        ptx_cp_async(mine + i * CODES_THREADS * 16, from + i * WARP);
}

/* c[m][i]: rows 16m .., outputs i of all lanes. */
template <int ROWS>
static __device__ inline void multiply(int32_t (&c)[ROWS / 16][4][4], const uint4 *stage)
{
    int          lane = threadIdx.x % WARP;
    const uint4 *mine = stage + Stage<ROWS>::MINE + threadIdx.x;
    uint32_t     b[4][4];
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        put_four(b[i], mine[i * CODES_THREADS]);
#pragma unroll
    for (int s = 0; s < CODES_STEP / 32; s++)
#pragma unroll
        for (int m = 0; m < ROWS / 16; m++) {
            uint32_t a[4];
            ptx_ldmatrix_x4(a, ptx_shared(stage + a_place(16 * m + lane % 16,
                                                          2 * s + lane / 16)));
#pragma unroll
            for (int i = 0; i < 4; i++)
                ptx_mma_s8(c[m][i], a, b[i][2 * s], b[i][2 * s + 1]);
        }
}

static __device__ inline float scaled(int32_t sum, float row_scale, int64_t n,
                                      const CodesView &w)
{
    float v = __fmul_rn(row_scale, __fmul_rn(w.scales[n], (float)sum));
    return w.bias ? v + w.bias[n] : v;
}

/* C has columns 2q and 2q + 1: outputs 8q + i and 8q + 4 + i of the strip. */
template <int ROWS>
static __device__ inline void write(float *y, int64_t ldy,
                                    const int32_t (&c)[ROWS / 16][4][4], const CodesView &w,
                                    const Tiles &r, const CodesTile &tile)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < ROWS / 16; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t t = tile.row + 16 * m + 8 * half + lane / 4;
            float   row_scale = t < r.T ? r.scales[t] : 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int64_t n = tile.n + lane % 4 * 8 + i;
                int32_t v = c[m][i % 4][2 * half + i / 4];
                if (t >= r.T || n >= w.n)
                    continue;
                if (r.parts)
                    r.parts[(tile.slice * r.T + t) * w.n + n] = v;
                else
                    y[t * ldy + n] = scaled(v, row_scale, n, w);
            }
        }
}

template <int ROWS>
static __global__ void __launch_bounds__(CODES_THREADS, ROWS == 128 ? 2 : 3)
whole_kernel(float *y, int64_t ldy, const CodesView w, const Tiles r)
{
    typedef Stage<ROWS> S;
    extern __shared__ uint4 stages[];
    CodesTile tile = codes_tile(w, ROWS, r.row_tiles, r.output_tiles, r.bricks);
    int64_t   brick = tile.brick;
    int32_t   c[ROWS / 16][4][4] = {};
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (brick + i < tile.end)
            fetch<ROWS>(stages + i * S::VECS, w, r, tile, brick + i);
        ptx_cp_commit();
    }
    for (int at = 0; brick < tile.end; brick++, at = (at + 1) % STAGES) {
        ptx_cp_wait<STAGES - 2>();
        __syncthreads();  // all have it, and are done with the stage to fill next
        if (brick + STAGES - 1 < tile.end)
            fetch<ROWS>(stages + (at + STAGES - 1) % STAGES * S::VECS, w, r, tile,
                        brick + STAGES - 1);
        ptx_cp_commit();
        multiply<ROWS>(c, stages + at * S::VECS);
    }
    write<ROWS>(y, ldy, c, w, r, tile);
}

static __global__ void __launch_bounds__(BLOCK)
whole_slices_kernel(float *y, int64_t ldy, const CodesView w, const Tiles r, int64_t n_slices)
{
    int64_t t = blockIdx.x;
    for (int64_t n = codes_column(); n < w.n; n += codes_columns()) {
        int32_t sum = 0;
        for (int64_t s = 0; s < n_slices; s++)
            sum += r.parts[(s * r.T + t) * w.n + n];
        y[t * ldy + n] = scaled(sum, r.scales[t], n, w);
    }
}

/* --- launches --- */

template <int ROWS>
static Status launch(Backend *be, const CodesProduct *p, const Tiles *r, unsigned blocks)
{
    typedef Stage<ROWS> S;
    TRY(codes_shared(be, (const void *)whole_kernel<ROWS>, S::BYTES));
    whole_kernel<ROWS><<<blocks, CODES_THREADS, S::BYTES, cuda_state(be)->stream>>>(
        p->y, p->ldy, p->w, *r);
    return cuda_launched("whole numbers");
}

Status codes_whole_numbers(Backend *be, const CodesProduct *p, const CudaTwin *x)
{
    Tiles   r = {};
    int64_t rows = p->T <= 32 ? 32 : 128;
    void   *parts;
    r.a = (const uint4 *)x->codes;
    r.scales = x->scales;
    r.T = p->T;
    r.row_tiles = (unsigned)ceil_div(p->T, rows);
    r.output_tiles = (unsigned)ceil_div(p->w.n, CODES_OUTPUTS);
    int64_t     tiles = (int64_t)r.row_tiles * r.output_tiles;
    CodesSlices s = codes_slices(p->w.n_bricks, tiles, WANTED_BLOCKS, LEAST_BRICKS);
    r.bricks = s.bricks;
    if (s.n_slices > 1) {
        TRY(cuda_scratch(be, &parts, (size_t)(s.n_slices * p->T * p->w.n) * sizeof(int32_t)));
        r.parts = (int32_t *)parts;
    }
    unsigned blocks = (unsigned)(tiles * s.n_slices);
    TRY(rows == 32 ? launch<32>(be, p, &r, blocks) : launch<128>(be, p, &r, blocks));
    if (s.n_slices == 1)
        return OK;
    whole_slices_kernel<<<codes_rows(p->T, p->w.n), BLOCK, 0, cuda_state(be)->stream>>>(
        p->y, p->ldy, p->w, r, s.n_slices);
    return cuda_launched("slices of whole numbers");
}
