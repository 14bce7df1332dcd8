/* cuda_codes.cuh - what the products on codes share: a matrix as kernels see it, and words of
 * codes back to numbers.
 *
 * Inputs of a brick in fragments of cuda_ptx.cuh: of each output lane 4c + q holds inputs 16q
 * .. 16q + 15, which are its eight registers of B, b[h] of step s (K = 16) the pair 2s + h. So
 * the mma has input 16q + 4s + 2h + e of the brick where its own count has 2q + 8h + e:
 * whatever stands for x has to be in that order too. Fragments of A that hold weights take
 * output i of every lane as row c, and another one as row c + 8. */
#ifndef DQ_CUDA_CODES_CUH
#define DQ_CUDA_CODES_CUH

#include <cuda_bf16.h>

#include "kernels/cuda/cuda_codes.h"
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_ptx.cuh"

/* A block that has a tile of many rows: a warp a strip. */
enum {
    CODES_THREADS = 128, CODES_WARPS = CODES_THREADS / WARP,
    CODES_OUTPUTS = CODES_WARPS * CODES_STRIP
};

/* Outputs of a matrix from a multiple of CODES_STRIP on, in device memory. */
typedef struct {
    const uint4   *bricks;   // of strip s from s * strip_vecs on
    const float   *scales;   // row g at g * n_pad
    const float   *offsets;  // the same, or NULL
    const int32_t *order;    // [k] or NULL
    const float   *bias;     // [n] or NULL
    int64_t        n, n_pad, k, strip_vecs;
    int32_t        n_strips, n_bricks;  // n_bricks of a strip
    uint32_t       last_group;
    uint64_t       per_group;  // 2^63 / runs of a group, up; 0: one group
} CodesView;

/* One product: y [T,n] with rows ldy apart = x W^T + bias. */
typedef struct {
    float       *y;
    int64_t      ldy, T;
    const float *x;          // [T,k]
    CodesView    w;
    int          bits;
} CodesProduct;

/* Sums over K in slices, each of so many bricks; more than one go to scratch first. */
typedef struct {
    int64_t n_slices, bricks;
} CodesSlices;

static inline CodesSlices codes_slices(int64_t n_bricks, int64_t blocks, int64_t wanted,
                                       int64_t least)
{
    int64_t     most = i64_max(1, n_bricks / least);
    CodesSlices s;
    s.n_slices = i64_max(1, i64_min(most, wanted / i64_max(1, blocks)));
    s.bricks = ceil_div(n_bricks, s.n_slices);
    s.n_slices = ceil_div(n_bricks, s.bricks);
    return s;
}

/* The products, each in scratch of the operation at work. T == 1: */
MUST_USE Status codes_one_row(Backend *be, const CodesProduct *p, Dtype dtype);
/* bf16, T <= CODES_FEW */
enum { CODES_FEW = 16 };
MUST_USE Status codes_few_rows(Backend *be, const CodesProduct *p);
/* bf16, any T */
MUST_USE Status codes_tiles(Backend *be, const CodesProduct *p);

/* out [rows,k_pad] = x in the order of the codes, zeros behind it: f32, bf16, or bf16 in the
 * order that fragments count inputs in. Rows from T on are the last one's. */
typedef enum { CODES_X_F32, CODES_X_BF16, CODES_X_FRAGMENTS } CodesInputs;
MUST_USE Status codes_inputs(Backend *be, void **out, const CodesProduct *p, CodesInputs form,
                             int64_t rows);
/* y = the sum of parts [n_slices,T,n] in order, and bias. */
MUST_USE Status codes_add_slices(Backend *be, const CodesProduct *p, const float *parts,
                                 int64_t n_slices);

/* Dynamic shared memory for a kernel, past the 48 KB that need no asking. */
MUST_USE Status codes_shared(Backend *be, const void *kernel, size_t bytes);

/* Kernels of a block for some columns of a row: grid [rows, blocks of a row]. */
static inline dim3 codes_rows(int64_t rows, int64_t columns)
{
    enum { MOST = 1024 };
    return dim3((unsigned)rows, (unsigned)i64_min(ceil_div(columns, BLOCK), MOST));
}

#ifdef __CUDACC__

__device__ inline int64_t codes_column()
{
    return (int64_t)blockIdx.y * BLOCK + threadIdx.x;
}

__device__ inline int64_t codes_columns()
{
    return (int64_t)gridDim.y * BLOCK;
}

/* The group of run r of a row, and of what fills a row up the last. */
__device__ inline uint32_t codes_group(const CodesView &w, uint32_t r)
{
    uint32_t g = (uint32_t)__umul64hi((uint64_t)(2 * r), w.per_group);
    return g < w.last_group ? g : w.last_group;
}

/* Where a warp's tile begins, and its share of K. */
typedef struct {
    int64_t row, n, slice;
    int64_t brick, end;
    int     strip;
} CodesTile;

/* Neighbouring blocks take the same weights. A strip past the last does what the last one does:
 * what is past n is not written. */
__device__ inline CodesTile codes_tile(const CodesView &w, int rows, unsigned row_tiles,
                                       unsigned output_tiles, int64_t bricks)
{
    CodesTile t;
    unsigned  other = blockIdx.x / row_tiles;
    t.row = (int64_t)(blockIdx.x % row_tiles) * rows;
    t.n = (int64_t)(other % output_tiles) * CODES_OUTPUTS + threadIdx.x / WARP * CODES_STRIP;
    t.slice = other / output_tiles;
    t.brick = t.slice * bricks;
    t.end = min(t.brick + bricks, (int64_t)w.n_bricks);
    t.strip = min((int)(t.n / CODES_STRIP), w.n_strips - 1);
    return t;
}

/* --- words to numbers --- */

/* a b + c of two bf16 at a time. */
__device__ inline uint32_t bf16_fma(uint32_t a, uint32_t b, uint32_t c)
{
    __nv_bfloat162 r = __hfma2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b,
                               *(const __nv_bfloat162 *)&c);
    return *(const uint32_t *)&r;
}

/* Below, a code's bits become the last ones of a bf16 of 128 to 255, which stand for
 * themselves: 128 + code exactly. 128 and what was added to the code go off again. */
enum : uint32_t {
    BF16_ONES = 0x3f803f80, BF16_MINUS_ONES = 0xbf80bf80, BF16_128S = 0x43004300,
    BF16_MINUS_136S = 0xc308c308, BF16_MINUS_160S = 0xc320c320
};

/* Pair i of a run's codes, words [bits / 2], in bf16, exact. */
template <int BITS> __device__ inline uint32_t codes_pair(const uint32_t *words, int i)
{
    if (BITS == 4)
        return bf16_fma(ptx_and_or(words[i / 4] >> (i % 4 * 4), 0x000f000f, BF16_128S),
                        BF16_ONES, BF16_MINUS_136S);
    if (BITS == 6) {
        uint32_t bits = i < 6 ? ptx_and_or(words[i / 2] >> (i % 2 * 6), 0x003f003f, BF16_128S)
                              : ptx_and_or(words[i == 6 ? 0 : 2] >> 12, 0x000f000f, BF16_128S);
        if (i >= 6)
            bits = ptx_and_or(words[1] >> (i == 6 ? 8 : 10), 0x00300030, bits);
        return bf16_fma(bits, BF16_ONES, BF16_MINUS_160S);
    }
    /* A byte b is b & 127 without its sign, which counts 128: 256 in place of the 128 to take
     * off again. */
    uint32_t bytes = words[i / 2] >> (i % 2 * 8);
    return bf16_fma(ptx_and_or(bytes, 0x00800080, BF16_128S), BF16_MINUS_ONES,
                    ptx_and_or(bytes, 0x007f007f, BF16_128S));
}

__device__ inline uint32_t bf16_pair(float low, float high)
{
    __nv_bfloat162 r = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&r;
}

__device__ inline float bf16_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

__device__ inline float bf16_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* The offset of matrices without: adding it changes no number, not even -0. */
#define CODES_NO_OFFSET (-0.0f)

__device__ inline float codes_weight(float code, float scale, float offset)
{
    return __fadd_rn(__fmul_rn(scale, code), offset);
}

/* Two codes to two weights, rounded to bf16. */
__device__ inline uint32_t codes_weights(uint32_t pair, float scale, float offset)
{
    return bf16_pair(codes_weight(bf16_low(pair), scale, offset),
                     codes_weight(bf16_high(pair), scale, offset));
}

/* The run of output i of the lane's words of a brick. */
template <int BITS>
__device__ inline void codes_unpack(uint32_t (&pairs)[8], const uint32_t (&words)[2 * BITS],
                                    int i)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        pairs[j] = codes_pair<BITS>(words + i * (BITS / 2), j);
}

__device__ inline void put_four(uint32_t *to, uint4 v)
{
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

__device__ inline float of_four(const float4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

#endif
#endif
