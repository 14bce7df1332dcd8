/* cuda_codes_vec.cu - one row or a few rows times codes: all weights are read for little work.
 * one row   y[n] = sum_g scale[n,g] sum_k x[k] code[n,k] + offset[n,g] sum_k x[k] + bias[n]
 *           x f32, or rounded to bf16; no weight is rounded
 * few rows  y[t,n] = sum_k bf16(x[t,k]) bf16(scale code + offset) + bias[n], T <= 16
 * shapes    x [T,K], y [T,N] f32; bricks of cuda_codes.h
 * cost      bits / 8 bytes a weight, 4 or 8 a group: bound by memory as long as a weight takes
 *           less than about 3 instructions: it is 1.7 (4 bits, one row of bf16)
 * launch    a block of 4 warps a strip of 32 outputs and slice of K, slices until there are
 *           some 512 blocks; warps take every fourth brick. Each thread copies what itself
 *           will need, three bricks ahead: no barrier but for the sum at the end
 * bf16      in tensor cores, weights as A. One row leaves 7 of 8 columns of B empty: x goes
 *           into column q where inputs are those of lanes q, zeros elsewhere, so that each run
 *           of 16 inputs, which has its own scale, gets its own sum
 * sums      f32. bf16: tensor cores over 16 inputs, then runs (one row) or steps of 16 (few
 *           rows) in order; f32: one chain over 16 inputs, then one over runs; then lanes,
 *           warps, slices
 * NaN       goes through; with offsets infinity may become NaN, as it is in both sums
 * test      tests/cuda/test_cuda_codes.c */
#include "kernels/cuda/cuda_codes.cuh"
#include "kernels/cuda/cuda_ptx.cuh"

enum { STAGES = 4, WANTED_BLOCKS = 512, LEAST_BRICKS = 2 * CODES_WARPS };

/* One row rounded to bf16, one row of f32, up to 8 rows and up to 16, rounded. */
typedef enum { ROW_BF16, ROW_F32, ROWS_8, ROWS_16 } Way;

/* What a thread has of one brick, in vectors of 16 bytes: codes, scales and offsets of its four
 * outputs, inputs. */
template <int BITS, Way WAY> struct Ring {
    static constexpr int CODES = BITS / 2;
    static constexpr int GROUPS = WAY == ROW_BF16 ? 2 : 1;  // runs whose scales it has
    static constexpr int TOKENS = WAY == ROWS_16 ? 16 : WAY == ROWS_8 ? 8 : 1;
    static constexpr int INPUTS = WAY == ROW_F32 ? 4 : WAY == ROWS_16 ? 4 : 2;
    static constexpr int BRICK_VECS = WAY == ROW_F32 ? 16 : 8;  // of a row of x
    static constexpr int SCALES = CODES, OFFSETS = SCALES + GROUPS, X = OFFSETS + GROUPS;
    static constexpr int VECS = X + INPUTS;
    static constexpr size_t BYTES = (size_t)STAGES * VECS * CODES_THREADS * 16;
};

/* Of one slice of one strip. */
typedef struct {
    const uint4 *x;      // [T,k_pad] in the order of the codes
    float       *parts;  // [n_slices,T,n] or NULL: into y
    int64_t      bricks; // of a slice
    int32_t      T;
} Rows;

/* --- the ring --- */

template <int BITS, Way WAY>
static __device__ inline void fetch_inputs(uint32_t to, const Rows &r, int64_t n_bricks, int64_t brick,
                                    int lane)
{
    typedef Ring<BITS, WAY> R;
    int c = lane / 4, q = lane % 4;
#pragma unroll
    for (int i = 0; i < R::INPUTS; i++) {
        int  token = WAY == ROWS_8 || WAY == ROWS_16 ? i / 2 * 8 + c : 0;
        bool wanted = WAY == ROW_F32 || (WAY == ROW_BF16 ? c == q : token < r.T);
        int  from = WAY == ROW_F32 ? q * 4 + i : q * 2 + i % 2;
        if (wanted)
            ptx_cp_async(to + i * CODES_THREADS * 16,
                         r.x + (token * n_bricks + brick) * R::BRICK_VECS + from);
    }
}

/* slot: this thread's first vector in the ring's slot; they are CODES_THREADS apart. */
template <int BITS, Way WAY>
static __device__ inline void fetch(uint32_t slot, const CodesView &w, const Rows &r, int strip,
                             int64_t brick, int lane)
{
    typedef Ring<BITS, WAY> R;
    const uint4 *from = w.bricks + strip * w.strip_vecs + brick * (BITS * 16) + lane;
#pragma unroll
    for (int i = 0; i < R::CODES; i++)
        ptx_cp_async(slot + i * CODES_THREADS * 16, from + i * WARP);
#pragma unroll
    for (int i = 0; i < R::GROUPS; i++) {
        int     run = WAY == ROW_BF16 ? lane % 2 * 2 + i : lane % 4;
        int64_t at = codes_group(w, (uint32_t)brick * 4 + run) * w.n_pad + strip * CODES_STRIP +
                     lane / 4 * 4;
        ptx_cp_async(slot + (R::SCALES + i) * CODES_THREADS * 16, w.scales + at);
        if (w.offsets)
            ptx_cp_async(slot + (R::OFFSETS + i) * CODES_THREADS * 16, w.offsets + at);
    }
    fetch_inputs<BITS, WAY>(slot + R::X * CODES_THREADS * 16, r, w.n_bricks, brick, lane);
}

static __device__ inline float4 floats(const uint4 *slot, int i)
{
    return *(const float4 *)(slot + i * CODES_THREADS);
}

/* --- sums of one brick: outputs 4c + i of the lane in four floats a token --- */

/* B of the run's step s, from the run's inputs in order. */
static __device__ inline void put_inputs(uint32_t (&b)[8], const uint4 *slot, bool there)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        put_four(b + 4 * i, there ? slot[i * CODES_THREADS] : make_uint4(0, 0, 0, 0));
}

/* c += outputs 2 half and 2 half + 1 of all lanes as rows c and c + 8, times B. */
static __device__ inline void multiply(float (&c)[4], const uint32_t (&even)[8],
                                const uint32_t (&odd)[8], const uint32_t (&b)[8])
{
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint32_t a[4] = {even[2 * s], odd[2 * s], even[2 * s + 1], odd[2 * s + 1]};
        ptx_mma_bf16(c, a, b[2 * s], b[2 * s + 1]);
    }
}

/* Columns 2q and 2q + 1 hold the sums of runs 2q and 2q + 1; from q = 2 on zeros. */
template <int BITS>
static __device__ inline void add_row_bf16(float (&total)[4], const uint32_t (&words)[2 * BITS],
                                    const uint4 *slot, const CodesView &w, int lane)
{
    typedef Ring<BITS, ROW_BF16> R;
    uint32_t b[8];
    float4   scale[2] = {floats(slot, R::SCALES), floats(slot, R::SCALES + 1)};
    put_inputs(b, slot + R::X * CODES_THREADS, lane / 4 == lane % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t even[8], odd[8];
        float    c[4] = {0, 0, 0, 0};
        codes_unpack_output<BITS>(even, words, 2 * half);
        codes_unpack_output<BITS>(odd, words, 2 * half + 1);
        multiply(c, even, odd, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[2 * half + i / 2] += of_four(scale[i % 2], 2 * half + i / 2) * c[i];
    }
    if (w.offsets) {
        const uint32_t ones[4] = {BF16_ONES, BF16_ONES, BF16_ONES, BF16_ONES};
        float4         offset[2] = {floats(slot, R::OFFSETS), floats(slot, R::OFFSETS + 1)};
        float          c[4] = {0, 0, 0, 0};
#pragma unroll
        for (int s = 0; s < 4; s++)
            ptx_mma_bf16(c, ones, b[2 * s], b[2 * s + 1]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[i] += of_four(offset[0], i) * c[0] + of_four(offset[1], i) * c[1];
    }
}

template <int BITS>
static __device__ inline void add_row_f32(float (&total)[4], const uint32_t (&words)[2 * BITS],
                                   const uint4 *slot, const CodesView &w)
{
    typedef Ring<BITS, ROW_F32> R;
    float4 scale = floats(slot, R::SCALES);
    float  x[16], sum_x = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 v = floats(slot, R::X + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[4 * i + j] = of_four(v, j);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t pairs[8];
        float    sum = 0;
        codes_unpack_output<BITS>(pairs, words, i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            sum = __fmaf_rn(x[2 * j], bf16_low(pairs[j]), sum);
            sum = __fmaf_rn(x[2 * j + 1], bf16_high(pairs[j]), sum);
        }
        total[i] = __fmaf_rn(of_four(scale, i), sum, total[i]);
    }
    if (w.offsets) {
        float4 offset = floats(slot, R::OFFSETS);
#pragma unroll
        for (int i = 0; i < 16; i++)
            sum_x += x[i];
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[i] = __fmaf_rn(of_four(offset, i), sum_x, total[i]);
    }
}

/* total [half][tokens / 8][4]: C of outputs 2 half (rows c) and 2 half + 1 (rows c + 8). */
template <int BITS, Way WAY>
static __device__ inline void add_rows(float (&total)[2][Ring<BITS, WAY>::TOKENS / 8][4],
                                const uint32_t (&words)[2 * BITS], const uint4 *slot,
                                const CodesView &w, const Rows &r, int lane)
{
    typedef Ring<BITS, WAY> R;
    constexpr int EIGHTS = R::TOKENS / 8;
    const float4  none = make_float4(CODES_NO_OFFSET, CODES_NO_OFFSET, CODES_NO_OFFSET,
                                     CODES_NO_OFFSET);
    float4        scale = floats(slot, R::SCALES);
    float4        offset = w.offsets ? floats(slot, R::OFFSETS) : none;
    uint32_t      b[EIGHTS][8];
#pragma unroll
    for (int i = 0; i < EIGHTS; i++)
        put_inputs(b[i], slot + (R::X + 2 * i) * CODES_THREADS, i * 8 + lane / 4 < r.T);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t even[8], odd[8];
        codes_unpack_output<BITS>(even, words, 2 * half);
        codes_unpack_output<BITS>(odd, words, 2 * half + 1);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            even[i] = codes_weights(even[i], of_four(scale, 2 * half), of_four(offset, 2 * half));
            odd[i] = codes_weights(odd[i], of_four(scale, 2 * half + 1),
                                   of_four(offset, 2 * half + 1));
        }
#pragma unroll
        for (int i = 0; i < EIGHTS; i++)
            multiply(total[half][i], even, odd, b[i]);
    }
}

/* --- a block --- */

/* sums [CODES_WARPS][CODES_STRIP * tokens], output 4c + i of token t at i's place. */
template <int BITS, Way WAY>
static __device__ inline void finish(float *y, int64_t ldy, const float *sums, const CodesView &w,
                              const Rows &r, int strip, int64_t slice)
{
    constexpr int COUNT = CODES_STRIP * Ring<BITS, WAY>::TOKENS;
    __syncthreads();
    for (int i = threadIdx.x; i < COUNT; i += CODES_THREADS) {
        int64_t n = (int64_t)strip * CODES_STRIP + i % CODES_STRIP, t = i / CODES_STRIP;
        float   sum = sums[i];
#pragma unroll
        for (int j = 1; j < CODES_WARPS; j++)
            sum += sums[j * COUNT + i];
        if (n >= w.n || t >= r.T)
            continue;
        if (r.parts)
            r.parts[(slice * r.T + t) * w.n + n] = sum;
        else
            y[t * ldy + n] = w.bias ? sum + w.bias[n] : sum;
    }
}

template <int BITS, Way WAY> struct Sums {
    float of[2][Ring<BITS, WAY>::TOKENS / 8][4];
};
template <int BITS> struct Sums<BITS, ROW_BF16> {
    float of[4];
};
template <int BITS> struct Sums<BITS, ROW_F32> {
    float of[4];
};

template <int BITS>
static __device__ inline void add(Sums<BITS, ROW_BF16> &s, const uint32_t (&words)[2 * BITS],
                           const uint4 *slot, const CodesView &w, const Rows &, int lane)
{
    add_row_bf16<BITS>(s.of, words, slot, w, lane);
}

template <int BITS>
static __device__ inline void add(Sums<BITS, ROW_F32> &s, const uint32_t (&words)[2 * BITS],
                           const uint4 *slot, const CodesView &w, const Rows &, int)
{
    add_row_f32<BITS>(s.of, words, slot, w);
}

template <int BITS, Way WAY>
static __device__ inline void add(Sums<BITS, WAY> &s, const uint32_t (&words)[2 * BITS],
                           const uint4 *slot, const CodesView &w, const Rows &r, int lane)
{
    add_rows<BITS, WAY>(s.of, words, slot, w, r, lane);
}

/* Outputs of the lane, one token. */
static __device__ inline void put_row(float *sums, float (&of)[4], int lane)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        of[i] += __shfl_xor_sync((unsigned)ALL_LANES, of[i], 1);
        of[i] += __shfl_xor_sync((unsigned)ALL_LANES, of[i], 2);
        if (lane % 4 == 0)
            sums[lane / 4 * 4 + i] = of[i];
    }
}

template <int BITS> static __device__ inline void put(float *sums, Sums<BITS, ROW_BF16> &s, int lane)
{
    put_row(sums, s.of, lane);
}

template <int BITS> static __device__ inline void put(float *sums, Sums<BITS, ROW_F32> &s, int lane)
{
    put_row(sums, s.of, lane);
}

template <int BITS, Way WAY>
static __device__ inline void put(float *sums, Sums<BITS, WAY> &s, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < Ring<BITS, WAY>::TOKENS / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int n = lane / 4 * 4 + 2 * half + j / 2, t = 8 * i + lane % 4 * 2 + j % 2;
                sums[t * CODES_STRIP + n] = s.of[half][i][j];
            }
}

template <int BITS, Way WAY>
static __global__ void __launch_bounds__(CODES_THREADS)
rows_kernel(float *y, int64_t ldy, const CodesView w, const Rows r)
{
    typedef Ring<BITS, WAY> R;
    extern __shared__ uint4 ring[];
    int     warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int     strip = (int)(blockIdx.x % (unsigned)w.n_strips);
    int64_t slice = blockIdx.x / (unsigned)w.n_strips;
    int64_t end = min((slice + 1) * r.bricks, (int64_t)w.n_bricks);
    int64_t brick = slice * r.bricks + warp;
    uint4  *mine = ring + threadIdx.x;
    Sums<BITS, WAY> sums = {};
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (brick + i * CODES_WARPS < end)
            fetch<BITS, WAY>(ptx_shared(mine + i * R::VECS * CODES_THREADS), w, r, strip,
                             brick + i * CODES_WARPS, lane);
        ptx_cp_commit();
    }
    for (int at = 0; brick < end; brick += CODES_WARPS, at = (at + 1) % STAGES) {
        const uint4 *slot = mine + at * R::VECS * CODES_THREADS;
        int64_t      ahead = brick + (STAGES - 1) * CODES_WARPS;
        uint32_t     words[2 * BITS];
        ptx_cp_wait<STAGES - 2>();
#pragma unroll
        for (int i = 0; i < R::CODES; i++)
            put_four(words + 4 * i, slot[i * CODES_THREADS]);
        add(sums, words, slot, w, r, lane);
        if (ahead < end)
            fetch<BITS, WAY>(ptx_shared(mine + (at + STAGES - 1) % STAGES * R::VECS *
                                                   CODES_THREADS),
                             w, r, strip, ahead, lane);
        ptx_cp_commit();
    }
    ptx_cp_wait<0>();
    __syncthreads();
    float *all = (float *)ring;
    put(all + warp * CODES_STRIP * R::TOKENS, sums, lane);
    finish<BITS, WAY>(y, ldy, all, w, r, strip, slice);
}

/* --- launches --- */

template <int BITS, Way WAY>
static Status launch(Backend *be, const CodesProduct *p, const Rows *r, int64_t n_slices)
{
    typedef Ring<BITS, WAY> R;
    TRY(codes_shared(be, (const void *)rows_kernel<BITS, WAY>, R::BYTES));
    rows_kernel<BITS, WAY><<<(unsigned)(p->w.n_strips * n_slices), CODES_THREADS, R::BYTES,
                             cuda_state(be)->stream>>>(p->y, p->ldy, p->w, *r);
    return cuda_launched("rows of codes");
}

template <Way WAY> static Status run(Backend *be, const CodesProduct *p, CodesInputs form)
{
    CodesSlices s = codes_slices(p->w.n_bricks, p->w.n_strips, WANTED_BLOCKS, LEAST_BRICKS);
    Rows        r = {};
    void       *x, *parts;
    TRY(codes_inputs(be, &x, p, form));
    r.x = (const uint4 *)x;
    r.bricks = s.bricks;
    r.T = (int32_t)p->T;
    if (s.n_slices > 1) {
        TRY(cuda_scratch(be, &parts, (size_t)(s.n_slices * p->T * p->w.n) * sizeof(float)));
        r.parts = (float *)parts;
    }
    if (p->bits == 4)
        TRY((launch<4, WAY>(be, p, &r, s.n_slices)));
    else if (p->bits == 6)
        TRY((launch<6, WAY>(be, p, &r, s.n_slices)));
    else
        TRY((launch<8, WAY>(be, p, &r, s.n_slices)));
    return s.n_slices > 1 ? codes_add_slices(be, p, r.parts, s.n_slices) : OK;
}

Status codes_one_row(Backend *be, const CodesProduct *p, Dtype dtype)
{
    return dtype == DTYPE_F32 ? run<ROW_F32>(be, p, CODES_X_F32)
                              : run<ROW_BF16>(be, p, CODES_X_BF16);
}

Status codes_few_rows(Backend *be, const CodesProduct *p)
{
    return p->T <= 8 ? run<ROWS_8>(be, p, CODES_X_BF16) : run<ROWS_16>(be, p, CODES_X_BF16);
}
