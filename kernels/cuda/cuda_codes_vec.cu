/* cuda_codes_vec.cu - one row or a few rows times codes: all weights are read for little work.
 * one row   y[n] = sum_g scale[n,g] sum_k x[k] code[n,k] + offset[n,g] sum_k x[k] + bias[n]
 *           x f32, or rounded to bf16; no weight is rounded
 * few rows  y[t,n] = sum_k bf16(x[t,k]) bf16(scale code + offset) + bias[n], T <= 16
 * shapes    x [T,K], y [T,N] f32; bricks of cuda_codes.h
 * cost      bits / 8 bytes a weight, 4 or 8 a group: bound by memory. One row of bf16 takes 3.4
 *           instructions a weight (of 4 bits), of which an H200 has about 3 in the time that
 *           half a byte takes to come, an A100 5; f32 takes 5
 * launch    a block of 8 warps (few rows: 4) a strip of 32 outputs; warps take bricks in turn,
 *           two or three of each are on their way. One row is one launch where x lies well and
 *           N is not small; else K goes in slices and x through scratch
 * bf16      in tensor cores, weights as A. One row leaves 7 of 8 columns of B empty: x goes
 *           into column q where inputs are those of lanes q, zeros elsewhere, so that each run
 *           of 16 inputs, which has its own scale, gets its own sum
 * sums      f32. bf16: tensor cores over 16 inputs, then runs (one row) or steps of 16 (few
 *           rows) in order; f32: one chain over 16 inputs, then one over runs; then lanes,
 *           warps, slices
 * NaN       goes through; with offsets infinity may become NaN, as it is in both sums
 * test      tests/cuda/test_cuda_codes.c */
#include "kernels/cuda/cuda_codes.cuh"

/* One row rounded to bf16, one row of f32, up to 8 rows and up to 16, rounded. */
typedef enum { ROW_BF16, ROW_F32, ROWS_8, ROWS_16 } Way;

enum { BRICK_FLOATS = CODES_STEP / 4, BRICK_HALVES = CODES_STEP / 8 };  // vectors of a row of x

/* A stage of the ring in vectors of 16 bytes, CODES of each thread, then the scale and offset
 * of its run, four outputs each; then x, of the brick of each warp: one row of f32, or of each
 * lane's run and token. */
template <int BITS, Way WAY> struct Ring {
    static constexpr bool ONE_ROW = WAY == ROW_BF16 || WAY == ROW_F32;
    static constexpr int  WARPS = ONE_ROW ? 8 : 4, THREADS = WARPS * WARP;
    static constexpr int  COUNT = ONE_ROW && BITS > 4 ? 3 : 4;  // stages
    static constexpr int  TOKENS = WAY == ROWS_16 ? 16 : WAY == ROWS_8 ? 8 : 1;
    static constexpr int  CODES = BITS / 2, SCALE = CODES, OFFSET = SCALE + 1, X = OFFSET + 1;
    static constexpr int  INPUTS = ONE_ROW ? 0 : TOKENS / 4;
    static constexpr int  VECS = (X + INPUTS) * THREADS + (ONE_ROW ? WARPS * BRICK_FLOATS : 0);
    static constexpr int  OUTPUTS = CODES_STRIP * TOKENS;  // sums of each warp
    static constexpr size_t BYTES = (size_t)COUNT * VECS * 16;
    static_assert(BYTES >= (size_t)WARPS * OUTPUTS * sizeof(float), "sums take its place");
    static_assert(BYTES <= 99 << 10, "what the smallest of GPUs give to a block");
};

/* Of one slice of one strip. */
typedef struct {
    const uint4 *x;       // [T,k_pad] in the order of the codes; one row: f32, else bf16
    float       *parts;   // [n_slices,T,n] or NULL: into y
    int64_t      bricks;  // of a slice
    int32_t      T;
} Rows;

/* --- the ring --- */

/* Vector i of the lane's run in the row of x that its warp has. */
static __device__ inline int row_place(int q, int i)
{
    return i * 4 + q;
}

template <int BITS, Way WAY>
static __device__ inline void fetch_inputs(uint4 *x, const Rows &r, int64_t n_bricks,
                                           int64_t brick)
{
    typedef Ring<BITS, WAY> R;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (R::ONE_ROW) {
        if (lane < BRICK_FLOATS)
            ptx_cp_async(ptx_shared(x + warp * BRICK_FLOATS + row_place(lane / 4, lane % 4)),
                         r.x + brick * BRICK_FLOATS + lane);
    } else {
#pragma unroll
        for (int i = 0; i < R::INPUTS; i++) {
            int token = i / 2 * 8 + lane / 4;
            if (token < r.T)
                ptx_cp_async(ptx_shared(x + i * R::THREADS + threadIdx.x),
                             r.x + (token * n_bricks + brick) * BRICK_HALVES + lane % 4 * 2 +
                                 i % 2);
        }
    }
}

template <int BITS, Way WAY>
static __device__ inline void fetch(uint4 *stage, const CodesView &w, const Rows &r, int strip,
                                    int64_t brick)
{
    typedef Ring<BITS, WAY> R;
    int          lane = threadIdx.x % WARP;
    uint32_t     mine = ptx_shared(stage + threadIdx.x);
    const uint4 *from = w.bricks + strip * w.strip_vecs + brick * (BITS * 16) + lane;
    int64_t      at = codes_group(w, (uint32_t)brick * 4 + lane % 4) * w.n_pad +
                      strip * CODES_STRIP + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < R::CODES; i++)
        ptx_cp_async(mine + i * R::THREADS * 16, from + i * WARP);
    ptx_cp_async(mine + R::SCALE * R::THREADS * 16, w.scales + at);
    if (w.offsets)
        ptx_cp_async(mine + R::OFFSET * R::THREADS * 16, w.offsets + at);
    fetch_inputs<BITS, WAY>(stage + R::X * R::THREADS, r, w.n_bricks, brick);
}

static __device__ inline float4 floats(const uint4 *at)
{
    return *(const float4 *)at;
}

/* --- sums of one brick: outputs 4c + i of the lane in four floats a token --- */

/* c += outputs of all lanes, even as rows c and odd as rows c + 8, times B. */
static __device__ inline void multiply(float (&c)[4], const uint32_t (&even)[8],
                                       const uint32_t (&odd)[8], const uint32_t (&b)[8])
{
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint32_t a[4] = {even[2 * s], odd[2 * s], even[2 * s + 1], odd[2 * s + 1]};
        ptx_mma_bf16(c, a, b[2 * s], b[2 * s + 1]);
    }
}

/* The run of column q, rounded, in the lanes q of that column. */
static __device__ inline void put_row(uint32_t (&b)[8], const uint4 *x)
{
    int  q = threadIdx.x % 4;
    bool there = threadIdx.x % WARP / 4 == q;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 v = floats(x + row_place(q, i));
        b[2 * i] = there ? bf16_pair(v.x, v.y) : 0;
        b[2 * i + 1] = there ? bf16_pair(v.z, v.w) : 0;
    }
}

/* Columns 2q and 2q + 1 hold the sums of runs 2q and 2q + 1, whose scales are those of lanes
 * of this c; from q = 2 on zeros. */
template <int BITS>
static __device__ inline void add_brick(float (&total)[4], const uint32_t (&words)[2 * BITS],
                                        const uint4 *stage, const CodesView &w, const Rows &,
                                        Ring<BITS, ROW_BF16>)
{
    typedef Ring<BITS, ROW_BF16> R;
    int          runs = (int)threadIdx.x / 4 * 4 + threadIdx.x % 2 * 2;
    const uint4 *scales = stage + R::SCALE * R::THREADS + runs;
    const uint4 *offsets = stage + R::OFFSET * R::THREADS + runs;
    float4       scale[2] = {floats(scales), floats(scales + 1)};
    uint32_t     b[8];
    put_row(b, stage + R::X * R::THREADS + threadIdx.x / WARP * BRICK_FLOATS);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t even[8], odd[8];
        float    c[4] = {0, 0, 0, 0};
        codes_unpack<BITS>(even, words, 2 * half);
        codes_unpack<BITS>(odd, words, 2 * half + 1);
        multiply(c, even, odd, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[2 * half + i / 2] += of_four(scale[i % 2], 2 * half + i / 2) * c[i];
    }
    if (w.offsets) {
        const uint32_t ones[8] = {BF16_ONES, BF16_ONES, BF16_ONES, BF16_ONES,
                                  BF16_ONES, BF16_ONES, BF16_ONES, BF16_ONES};
        float4         offset[2] = {floats(offsets), floats(offsets + 1)};
        float          c[4] = {0, 0, 0, 0};
        multiply(c, ones, ones, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[i] += of_four(offset[0], i) * c[0] + of_four(offset[1], i) * c[1];
    }
}

template <int BITS>
static __device__ inline void add_brick(float (&total)[4], const uint32_t (&words)[2 * BITS],
                                        const uint4 *stage, const CodesView &w, const Rows &,
                                        Ring<BITS, ROW_F32>)
{
    typedef Ring<BITS, ROW_F32> R;
    const uint4 *row = stage + R::X * R::THREADS + threadIdx.x / WARP * BRICK_FLOATS;
    float4       scale = floats(stage + R::SCALE * R::THREADS + threadIdx.x);
    float        x[CODES_RUN], sum_x = 0;
#pragma unroll
    for (int i = 0; i < CODES_RUN; i++)
        x[i] = of_four(floats(row + row_place(threadIdx.x % 4, i / 4)), i % 4);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t pairs[8];
        float    sum = 0;
        codes_unpack<BITS>(pairs, words, i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            sum = __fmaf_rn(x[2 * j], bf16_low(pairs[j]), sum);
            sum = __fmaf_rn(x[2 * j + 1], bf16_high(pairs[j]), sum);
        }
        total[i] = __fmaf_rn(of_four(scale, i), sum, total[i]);
    }
    if (w.offsets) {
        float4 offset = floats(stage + R::OFFSET * R::THREADS + threadIdx.x);
#pragma unroll
        for (int i = 0; i < CODES_RUN; i++)
            sum_x += x[i];
#pragma unroll
        for (int i = 0; i < 4; i++)
            total[i] = __fmaf_rn(of_four(offset, i), sum_x, total[i]);
    }
}

/* B of a token's run; a token that is not there is zeros. */
static __device__ inline void put_token(uint32_t (&b)[8], const uint4 *x, int apart, bool there)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        put_four(b + 4 * i, there ? x[i * apart] : make_uint4(0, 0, 0, 0));
}

/* total [half][tokens / 8][4]: C of outputs 2 half (rows c) and 2 half + 1 (rows c + 8). */
template <int BITS, Way WAY>
static __device__ inline void add_brick(float (&total)[2][Ring<BITS, WAY>::TOKENS / 8][4],
                                        const uint32_t (&words)[2 * BITS], const uint4 *stage,
                                        const CodesView &w, const Rows &r, Ring<BITS, WAY>)
{
    typedef Ring<BITS, WAY> R;
    constexpr int EIGHTS = R::TOKENS / 8;
    const uint4  *mine = stage + threadIdx.x;
    float4        scale = floats(mine + R::SCALE * R::THREADS);
    float4        offset = make_float4(CODES_NO_OFFSET, CODES_NO_OFFSET, CODES_NO_OFFSET,
                                       CODES_NO_OFFSET);
    uint32_t      b[EIGHTS][8];
    if (w.offsets)
        offset = floats(mine + R::OFFSET * R::THREADS);
#pragma unroll
    for (int i = 0; i < EIGHTS; i++)
        put_token(b[i], mine + (R::X + 2 * i) * R::THREADS, R::THREADS,
                  i * 8 + (int)threadIdx.x % WARP / 4 < r.T);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t even[8], odd[8];
        codes_unpack<BITS>(even, words, 2 * half);
        codes_unpack<BITS>(odd, words, 2 * half + 1);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            even[i] = codes_weights(even[i], of_four(scale, 2 * half),
                                    of_four(offset, 2 * half));
            odd[i] = codes_weights(odd[i], of_four(scale, 2 * half + 1),
                                   of_four(offset, 2 * half + 1));
        }
#pragma unroll
        for (int i = 0; i < EIGHTS; i++)
            multiply(total[half][i], even, odd, b[i]);
    }
}

/* --- a block --- */

/* Sums of a warp, output by output and token by token. */
static __device__ inline void put(float *sums, float (&total)[4])
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        total[i] += __shfl_xor_sync((unsigned)ALL_LANES, total[i], 1);
        total[i] += __shfl_xor_sync((unsigned)ALL_LANES, total[i], 2);
        if (lane % 4 == 0)
            sums[lane + i] = total[i];
    }
}

template <int EIGHTS>
static __device__ inline void put(float *sums, float (&total)[2][EIGHTS][4])
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < EIGHTS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int n = lane / 4 * 4 + 2 * half + j / 2, t = 8 * i + lane % 4 * 2 + j % 2;
                sums[t * CODES_STRIP + n] = total[half][i][j];
            }
}

template <class R>
static __device__ inline void write(float *y, int64_t ldy, const float *sums,
                                    const CodesView &w, const Rows &r, int strip, int64_t slice)
{
    for (int i = threadIdx.x; i < R::OUTPUTS; i += R::THREADS) {
        int64_t n = (int64_t)strip * CODES_STRIP + i % CODES_STRIP, t = i / CODES_STRIP;
        float   sum = sums[i];
#pragma unroll
        for (int j = 1; j < R::WARPS; j++)
            sum += sums[j * R::OUTPUTS + i];
        if (n >= w.n || t >= r.T)
            continue;
        if (r.parts)
            r.parts[(slice * r.T + t) * w.n + n] = sum;
        else
            y[t * ldy + n] = w.bias ? sum + w.bias[n] : sum;
    }
}

template <int BITS, Way WAY> struct Total {
    typedef float Sums[2][Ring<BITS, WAY>::TOKENS / 8][4];
};
template <int BITS> struct Total<BITS, ROW_BF16> {
    typedef float Sums[4];
};
template <int BITS> struct Total<BITS, ROW_F32> {
    typedef float Sums[4];
};

template <int BITS, Way WAY>
static __global__ void __launch_bounds__(Ring<BITS, WAY>::THREADS)
rows_kernel(float *y, int64_t ldy, const CodesView w, const Rows r)
{
    typedef Ring<BITS, WAY> R;
    extern __shared__ uint4 ring[];
    int     strip = (int)(blockIdx.x % (unsigned)w.n_strips);
    int64_t slice = blockIdx.x / (unsigned)w.n_strips;
    int64_t end = min((slice + 1) * r.bricks, (int64_t)w.n_bricks);
    int64_t brick = slice * r.bricks + threadIdx.x / WARP;
    typename Total<BITS, WAY>::Sums total = {};
#pragma unroll
    for (int i = 0; i < R::COUNT - 1; i++) {
        if (brick + i * R::WARPS < end)
            fetch<BITS, WAY>(ring + i * R::VECS, w, r, strip, brick + i * R::WARPS);
        ptx_cp_commit();
    }
    for (int at = 0; brick < end; brick += R::WARPS, at = (at + 1) % R::COUNT) {
        const uint4 *stage = ring + at * R::VECS;
        int64_t      ahead = brick + (R::COUNT - 1) * R::WARPS;
        uint32_t     words[2 * BITS];
        ptx_cp_wait<R::COUNT - 2>();
        __syncwarp();  // its lanes have it, and are done with the stage to fill next
        if (ahead < end)
            fetch<BITS, WAY>(ring + (at + R::COUNT - 1) % R::COUNT * R::VECS, w, r, strip,
                             ahead);
        ptx_cp_commit();
#pragma unroll
        for (int i = 0; i < R::CODES; i++)
            put_four(words + 4 * i, stage[i * R::THREADS + threadIdx.x]);
        add_brick(total, words, stage, w, r, R());
    }
    ptx_cp_wait<0>();
    __syncthreads();  // what follows takes the place of the ring
    float *sums = (float *)ring;
    put(sums + threadIdx.x / WARP * R::OUTPUTS, total);
    __syncthreads();
    write<R>(y, ldy, sums, w, r, strip, slice);
}

/* --- launches --- */

template <int BITS, Way WAY>
static Status launch(Backend *be, const CodesProduct *p, const Rows *r, int64_t n_slices)
{
    typedef Ring<BITS, WAY> R;
    TRY(codes_shared(be, (const void *)rows_kernel<BITS, WAY>, R::BYTES));
    rows_kernel<BITS, WAY><<<(unsigned)(p->w.n_strips * n_slices), R::THREADS, R::BYTES,
                             cuda_state(be)->stream>>>(p->y, p->ldy, p->w, *r);
    return cuda_launched("rows of codes");
}

/* K in slices until there are so many blocks, if each warp keeps two bricks. */
template <Way WAY>
static Status run(Backend *be, const CodesProduct *p, const void *x, int64_t wanted)
{
    CodesSlices s = codes_slices(p->w.n_bricks, p->w.n_strips, wanted, 2 * Ring<4, WAY>::WARPS);
    Rows        r = {};
    void       *parts;
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

/* A second launch to add slices costs what reading some megabytes does. */
Status codes_one_row(Backend *be, const CodesProduct *p, Dtype dtype)
{
    enum { WANTED = 48 };
    void *x = (void *)(uintptr_t)p->x;
    if (p->w.order || p->w.k % CODES_STEP || (uintptr_t)p->x % sizeof(uint4))
        TRY(codes_inputs(be, &x, p, CODES_X_F32, 1));
    return dtype == DTYPE_F32 ? run<ROW_F32>(be, p, x, WANTED)
                              : run<ROW_BF16>(be, p, x, WANTED);
}

Status codes_few_rows(Backend *be, const CodesProduct *p)
{
    enum { WANTED = 512 };
    void *x;
    TRY(codes_inputs(be, &x, p, CODES_X_BF16, p->T));
    return p->T <= 8 ? run<ROWS_8>(be, p, x, WANTED) : run<ROWS_16>(be, p, x, WANTED);
}
