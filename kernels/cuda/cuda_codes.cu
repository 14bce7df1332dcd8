/* cuda_codes.cu - products on codes: which way a product goes, and what the ways share.
 * y[t,n] = sum_k x[t,k] (scale[n,g] code[n,k] + offset[n,g]) + bias[n],  g = k / group
 * shapes  x [T,K], y [T,N] f32; codes as cuda_codes.h says; any T, N, K
 * ways    one row                        cuda_codes_vec.cu
 *         8 bits and rounded x           cuda_int8.cu, whole numbers
 *         bf16, up to 16 rows            cuda_codes_vec.cu
 *         bf16, up to CODES_TILES rows   cuda_codes_mma.cu
 *         f32, and bf16 of more rows     here: some outputs at a time are decoded to scratch
 *                                        and go through cuBLAS
 * cost    decoding: bits / 8 bytes read a weight, 4 or 2 written, then read by cuBLAS: small
 *         beside the product from some hundreds of rows on
 * launch  decoding: a warp a brick; rounding of x: two numbers a thread
 * sums    f32; cuBLAS: its order, for which the shapes decide
 * NaN     any NaN in row t makes row t NaN
 * test    tests/cuda/test_cuda_codes.c */
#include "kernels/cuda/cuda_codes.cuh"

#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/cuda_int8.h"
#include "kernels/cuda/cuda_twin.h"
#include "kernels/cuda/cuda_weights.h"

/* From so many rows on what cuBLAS gains on large products is more than what writing and
 * reading decoded weights costs; not measured yet. */
enum { CODES_TILES = 1024, PANEL_BYTES = 64 << 20, INPUT_BYTES = 256 << 20 };

Status codes_shared(Backend *be, const void *kernel, size_t bytes)
{
    if (bytes > cuda_state(be)->shared_most)
        FAIL(ERR_UNSUPPORTED, "cuda: %s has %zu bytes of shared memory a block, products on "
             "codes need %zu", cuda_state(be)->name, cuda_state(be)->shared_most, bytes);
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)bytes));
    return OK;
}

/* --- inputs --- */

/* Where the number at place p of a row comes from, within each brick. */
template <CodesInputs FORM> static __device__ inline int64_t input_at(int64_t p)
{
    if (FORM != CODES_X_FRAGMENTS)
        return p;
    return (p & ~(int64_t)63) | (p >> 1 & 3) << 4 | (p >> 4 & 3) << 2 | (p >> 3 & 1) << 1 |
           (p & 1);
}

static __device__ inline float read_input(const float *row, const int32_t *order, int64_t k,
                                          int64_t K)
{
    return k < K ? row[order ? order[k] : k] : 0;
}

/* Two numbers a thread; a row of blocks a row. */
template <CodesInputs FORM>
static __global__ void __launch_bounds__(BLOCK)
inputs_kernel(void *out, const float *x, const int32_t *order, int64_t T, int64_t K,
              int64_t k_pad)
{
    const float *row = x + min((int64_t)blockIdx.x, T - 1) * K;
    int64_t      first = blockIdx.x * k_pad / 2;
    for (int64_t i = codes_column(); i < k_pad / 2; i += codes_columns()) {
        int64_t k = input_at<FORM>(2 * i);
        float   a = read_input(row, order, k, K), b = read_input(row, order, k + 1, K);
        if (FORM == CODES_X_F32)
            ((float2 *)out)[first + i] = make_float2(a, b);
        else
            ((__nv_bfloat162 *)out)[first + i] = __floats2bfloat162_rn(a, b);
    }
}

template <CodesInputs FORM>
static Status write_inputs(Backend *be, void *out, const CodesProduct *p, int64_t rows)
{
    int64_t k_pad = (int64_t)p->w.n_bricks * CODES_STEP;
    inputs_kernel<FORM><<<codes_rows(rows, k_pad / 2), BLOCK, 0, cuda_state(be)->stream>>>(
        out, p->x, p->w.order, p->T, p->w.k, k_pad);
    return cuda_launched("inputs of codes");
}

Status codes_inputs(Backend *be, void **out, const CodesProduct *p, CodesInputs form,
                    int64_t rows)
{
    size_t n = (size_t)(rows * p->w.n_bricks * CODES_STEP);
    TRY(cuda_scratch(be, out, n * (form == CODES_X_F32 ? sizeof(float) : sizeof(uint16_t))));
    if (form == CODES_X_F32)
        return write_inputs<CODES_X_F32>(be, *out, p, rows);
    return form == CODES_X_BF16 ? write_inputs<CODES_X_BF16>(be, *out, p, rows)
                                : write_inputs<CODES_X_FRAGMENTS>(be, *out, p, rows);
}

/* --- slices of K --- */

static __global__ void __launch_bounds__(BLOCK)
slices_kernel(float *y, int64_t ldy, const float *parts, int64_t n_slices, int64_t n,
              const float *bias)
{
    for (int64_t i = codes_column(); i < n; i += codes_columns()) {
        float sum = parts[blockIdx.x * n + i];
        for (int64_t s = 1; s < n_slices; s++)
            sum += parts[(s * gridDim.x + blockIdx.x) * n + i];
        y[blockIdx.x * ldy + i] = bias ? sum + bias[i] : sum;
    }
}

Status codes_add_slices(Backend *be, const CodesProduct *p, const float *parts,
                        int64_t n_slices)
{
    slices_kernel<<<codes_rows(p->T, p->w.n), BLOCK, 0, cuda_state(be)->stream>>>(
        p->y, p->ldy, parts, n_slices, p->w.n, p->w.bias);
    return cuda_launched("slices of codes");
}

/* --- decoding --- */

static __device__ inline void put_run(float *to, const float (&v)[CODES_RUN])
{
#pragma unroll
    for (int i = 0; i < CODES_RUN; i += 4)
        *(float4 *)(to + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
}

static __device__ inline void put_run(__nv_bfloat16 *to, const float (&v)[CODES_RUN])
{
    uint32_t pairs[CODES_RUN / 2];
#pragma unroll
    for (int i = 0; i < CODES_RUN / 2; i++)
        pairs[i] = bf16_pair(v[2 * i], v[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < CODES_RUN / 2; i += 4)
        *(uint4 *)(to + 2 * i) = make_uint4(pairs[i], pairs[i + 1], pairs[i + 2], pairs[i + 3]);
}

/* One output's run from k0 on into its row; order: each number to where its input stands. */
template <class Out>
static __device__ inline void write_run(Out *row, const float (&v)[CODES_RUN],
                                        const CodesView &w, int64_t k0)
{
    if (!w.order) {
        put_run(row + k0, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < CODES_RUN; i++)
        if (k0 + i < w.k)
            row[w.order[k0 + i]] = v[i];
}

/* out [outputs of strips first .., k_pad]: a warp a brick. */
template <int BITS, class Out>
static __global__ void __launch_bounds__(BLOCK, 4)
decode_kernel(Out *out, const CodesView w, int64_t first, int64_t n_strips)
{
    int64_t brick = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    int     lane = threadIdx.x % WARP;
    if (brick >= n_strips * w.n_bricks)
        return;
    int64_t      strip = brick / w.n_bricks, b = brick - strip * w.n_bricks;
    int64_t      k0 = b * CODES_STEP + lane % 4 * CODES_RUN;
    int64_t      n0 = strip * CODES_STRIP + lane / 4 * 4;
    int64_t      k_pad = (int64_t)w.n_bricks * CODES_STEP;
    const uint4 *from = w.bricks + (first + strip) * w.strip_vecs + b * (BITS * 16) + lane;
    int64_t      at = codes_group(w, (uint32_t)(k0 / CODES_RUN)) * w.n_pad +
                      first * CODES_STRIP + n0;
    uint32_t     words[2 * BITS];
#pragma unroll
    for (int i = 0; i < BITS / 2; i++)
        put_four(words + 4 * i, from[i * WARP]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t pairs[8];
        float    v[CODES_RUN];
        float    scale = w.scales[at + i];
        float    offset = w.offsets ? w.offsets[at + i] : CODES_NO_OFFSET;
        codes_unpack<BITS>(pairs, words, i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[2 * j] = codes_weight(bf16_low(pairs[j]), scale, offset);
            v[2 * j + 1] = codes_weight(bf16_high(pairs[j]), scale, offset);
        }
        write_run(out + (n0 + i) * k_pad, v, w, k0);
    }
}

template <int BITS, class Out>
static Status decode_bits(Backend *be, Out *out, const CodesProduct *p, int64_t first,
                          int64_t n_strips)
{
    unsigned blocks = (unsigned)ceil_div(n_strips * p->w.n_bricks, BLOCK_WARPS);
    decode_kernel<BITS><<<blocks, BLOCK, 0, cuda_state(be)->stream>>>(out, p->w, first,
                                                                      n_strips);
    return cuda_launched("decoding of codes");
}

template <class Out>
static Status decode(Backend *be, Out *out, const CodesProduct *p, int64_t first,
                     int64_t n_strips)
{
    if (p->bits == 4)
        return decode_bits<4>(be, out, p, first, n_strips);
    return p->bits == 6 ? decode_bits<6>(be, out, p, first, n_strips)
                        : decode_bits<8>(be, out, p, first, n_strips);
}

/* --- panels through cuBLAS --- */

static __global__ void __launch_bounds__(BLOCK)
codes_bias_kernel(float *y, int64_t ldy, const float *bias, int64_t n)
{
    for (int64_t i = codes_column(); i < n; i += codes_columns())
        y[blockIdx.x * ldy + i] = bias[i];
}

static Status write_bias(Backend *be, const CodesProduct *p)
{
    codes_bias_kernel<<<codes_rows(p->T, p->w.n), BLOCK, 0, cuda_state(be)->stream>>>(
        p->y, p->ldy, p->w.bias, p->w.n);
    return cuda_launched("bias of codes");
}

/* x [T,ldx] of the panel's dtype. */
static Status by_panels(Backend *be, const CodesProduct *p, const void *x, int64_t ldx,
                        bool half)
{
    int64_t k_pad = (int64_t)p->w.n_bricks * CODES_STEP, row = k_pad * (half ? 2 : 4);
    int64_t some = i64_min(p->w.n_strips, i64_max(1, PANEL_BYTES / (row * CODES_STRIP)));
    void   *panel;
    TRY(cuda_scratch(be, &panel, (size_t)(some * CODES_STRIP * row)));
    if (p->w.bias)
        TRY(write_bias(be, p));
    for (int64_t first = 0; first < p->w.n_strips; first += some) {
        int64_t  strips = i64_min(some, p->w.n_strips - first), n0 = first * CODES_STRIP;
        CudaGemm g = {};
        if (half)
            TRY(decode(be, (__nv_bfloat16 *)panel, p, first, strips));
        else
            TRY(decode(be, (float *)panel, p, first, strips));
        g.m = p->T, g.n = i64_min(strips * CODES_STRIP, p->w.n - n0), g.k = p->w.k;
        g.a = x, g.lda = ldx;
        g.b = panel, g.ldb = k_pad, g.b_t = true;
        g.c = p->y + n0, g.ldc = p->ldy;
        g.half = half;
        g.tf32 = !half && be->tf32;
        g.alpha = 1, g.beta = p->w.bias ? 1.0f : 0.0f;
        TRY(cuda_gemm(be, &g));
    }
    return OK;
}

/* Rounded inputs of some rows at a time; panels are in the order of the inputs. */
static Status by_panels_half(Backend *be, const CodesProduct *all)
{
    int64_t      k_pad = (int64_t)all->w.n_bricks * CODES_STEP;
    int64_t      rows = i64_max(CODES_TILES, INPUT_BYTES / (2 * k_pad));
    CodesProduct p = *all;
    CudaBlock   *mark = cuda_scratch_mark(be);
    for (int64_t first = 0; first < all->T; first += rows) {
        void *x;
        p.T = i64_min(rows, all->T - first);
        p.x = all->x + first * p.w.k;
        p.y = all->y + first * p.ldy;
        p.w.order = NULL;
        TRY(codes_inputs(be, &x, &p, CODES_X_BF16, p.T));
        p.w.order = all->w.order;
        TRY(by_panels(be, &p, x, k_pad, true));
        cuda_scratch_rewind(be, mark);
    }
    return OK;
}

/* --- the choice --- */

static Status view(Backend *be, CodesView *v, const Linear *w, int64_t first, int64_t n)
{
    CudaWeights     *weights = (CudaWeights *)w->packed;
    const CudaCodes *c = weights->codes;
    const void      *here;
    CHECK(first % CODES_STRIP == 0);
    TRY(cuda_weights_here(be, weights, &here));
    const char *base = (const char *)here;
    int64_t     n_bricks = c->k_pad / CODES_STEP, runs = ceil_div(c->group, CODES_RUN);
    v->strip_vecs = n_bricks * c->bits * (CODES_STRIP * CODES_STEP / 8 / 16);
    v->bricks = (const uint4 *)base + first / CODES_STRIP * v->strip_vecs;
    v->scales = (const float *)(base + c->scales) + first;
    v->offsets = c->offsets ? (const float *)(base + c->offsets) + first : NULL;
    v->order = c->order ? (const int32_t *)(base + c->order) : NULL;
    v->bias = w->bias.data ? (const float *)w->bias.data + first : NULL;
    v->n = n;
    v->n_pad = c->n_pad;
    v->k = c->k;
    v->n_strips = (int32_t)ceil_div(n, CODES_STRIP);
    v->n_bricks = (int32_t)n_bricks;
    v->last_group = (uint32_t)(c->n_groups - 1);
    v->per_group = c->n_groups == 1 ? 0 : (((uint64_t)1 << 63) + (uint64_t)runs - 1) /
                                              (uint64_t)runs;
    return OK;
}

static Status product(Backend *be, const CodesProduct *p, Dtype dtype, const CudaTwin *twin)
{
    if (p->T == 1)
        return codes_one_row(be, p, dtype);
    if (twin)
        return codes_whole_numbers(be, p, twin);
    if (dtype == DTYPE_F32)
        return by_panels(be, p, p->x, p->w.k, false);
    if (p->T <= CODES_FEW)
        return codes_few_rows(be, p);
    return p->T <= CODES_TILES ? codes_tiles(be, p) : by_panels_half(be, p);
}

Status cuda_codes_block(Backend *be, float *y, const Tensor *x, const Linear *w, int64_t first,
                        int64_t n)
{
    const CudaCodes *c = ((const CudaWeights *)w->packed)->codes;
    const CudaTwin  *twin = c->whole_numbers ? cuda_twin_of(cuda_state(be), x) : NULL;
    CodesProduct     p = {};
    p.y = y;
    p.ldy = n;
    p.T = x->shape[0];
    p.x = (const float *)x->data;
    p.bits = w->bits;
    if (p.T == 0 || n == 0)
        return OK;
    CudaBlock *mark = cuda_scratch_mark(be);
    TRY(view(be, &p.w, w, first, n));
    TRY(product(be, &p, w->dtype, twin));
    cuda_scratch_rewind(be, mark);
    return OK;
}

Status cuda_codes_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w)
{
    return cuda_codes_block(be, (float *)y->data, x, w, 0, w->n);
}
