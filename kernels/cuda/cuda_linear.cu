/* cuda_linear.cu - y = x W^T + bias.
 * y[t,n] = sum_k x[t,k] w[n,k] + bias[n]
 * shapes  x [T,K], y [T,N] f32, W [N,stride] as cuda_linear_pack.c leaves it; any T, N, K
 * cost    2 T N K flops. T == 1 reads all of W: bound by memory; from T of some hundreds on by
 *         the multipliers
 * types   f32 by cuBLAS in f32 (TF32 only where Backend.tf32 asks for it); bf16: x is rounded
 *         once, cuBLAS multiplies bf16 and sums in f32; codes: cuda_codes.h
 * launch  T > 1: rounding [T,K], rows of bias [T,N], cuBLAS with beta 1. T == 1: a warp for
 *         each row of W, which rounds x as it goes; eight rows a block, 16 bytes a load of
 *         which four are under way
 * sums    f32. T == 1: four a lane, then lanes; cuBLAS: its order, for which shapes and the
 *         alignment of x and y decide
 * NaN     any NaN in row t makes row t NaN
 * test    tests/cuda/test_cuda_linear.c */
#include <cuda_bf16.h>

#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/cuda_codes.h"
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_weights.h"

enum { VEC_BYTES = 16, UNDER_WAY = 4 };

/* --- one row --- */

/* Weights i .. of a row, 16 bytes of them, times as many inputs. */
static __device__ inline void add_products(float (&sum)[4], const float4 &w, const float4 *x,
                                           int i)
{
    const float4 v = x[i];
    sum[0] = fmaf(w.x, v.x, sum[0]);
    sum[1] = fmaf(w.y, v.y, sum[1]);
    sum[2] = fmaf(w.z, v.z, sum[2]);
    sum[3] = fmaf(w.w, v.w, sum[3]);
}

/* Two of bf16 times two inputs that are rounded to it. */
static __device__ inline void add_pair(float &a, float &b, uint32_t w, float x, float y)
{
    const float2 v = __bfloat1622float2(__floats2bfloat162_rn(x, y));
    a = fmaf(__uint_as_float(w << 16), v.x, a);
    b = fmaf(__uint_as_float(w & 0xffff0000u), v.y, b);
}

static __device__ inline void add_products(float (&sum)[4], const uint4 &w, const float4 *x,
                                           int i)
{
    const float4 v = x[2 * i], u = x[2 * i + 1];
    add_pair(sum[0], sum[1], w.x, v.x, v.y);
    add_pair(sum[2], sum[3], w.y, v.z, v.w);
    add_pair(sum[0], sum[1], w.z, u.x, u.y);
    add_pair(sum[2], sum[3], w.w, u.z, u.w);
}

/* Vec: 16 bytes of f32 or bf16; rows of n_vecs. */
template <class Vec>
static __global__ void __launch_bounds__(BLOCK)
row_kernel(float *y, const Vec *w, const float4 *x, const float *bias, int64_t N, int n_vecs)
{
    int     lane = threadIdx.x % WARP;
    int64_t n = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;
    if (n >= N)
        return;
    const Vec *row = w + n * n_vecs;
    float      sum[4] = {0, 0, 0, 0};
    int        i = lane;
    /* Weights pass through once; the cache is for x. */
    for (; i + (UNDER_WAY - 1) * WARP < n_vecs; i += UNDER_WAY * WARP) {
        Vec some[UNDER_WAY];
#pragma unroll
        for (int j = 0; j < UNDER_WAY; j++)
            some[j] = __ldcs(row + i + j * WARP);
#pragma unroll
        for (int j = 0; j < UNDER_WAY; j++)
            add_products(sum, some[j], x, i + j * WARP);
    }
    for (; i < n_vecs; i += WARP)
        add_products(sum, __ldcs(row + i), x, i);
    float all = warp_sum((sum[0] + sum[2]) + (sum[1] + sum[3]));
    if (lane == 0)
        y[n] = all + (bias ? bias[n] : 0);
}

template <class Vec>
static Status one_row(Backend *be, float *y, const CudaInput *in, const void *w,
                      const float *bias, int64_t n)
{
    int64_t each = VEC_BYTES / (int64_t)dtype_size(in->w->dtype);
    row_kernel<<<(unsigned)ceil_div(n, BLOCK_WARPS), BLOCK, 0, cuda_state(be)->stream>>>(
        y, (const Vec *)w, (const float4 *)in->data, bias, n, (int)(in->stride / each));
    return cuda_launched("linear, one row");
}

/* --- inputs --- */

/* Two numbers a thread; zeros between K and stride. */
static __global__ void round_kernel(__nv_bfloat162 *to, const float *x, int64_t n_pairs,
                                    int64_t K, int64_t pairs)
{
    for (int64_t i = grid_index(); i < n_pairs; i += grid_size()) {
        int64_t      t = i / pairs, k = 2 * (i - t * pairs);
        const float *from = x + t * K + k;
        to[i] = __floats2bfloat162_rn(k < K ? from[0] : 0, k + 1 < K ? from[1] : 0);
    }
}

static __global__ void spread_kernel(float *to, const float *x, int64_t K, int64_t stride)
{
    for (int64_t i = grid_index(); i < stride; i += grid_size())
        to[i] = i < K ? x[i] : 0;
}

/* The kernel of one row reads whole 16 bytes. */
static bool is_whole(const CudaInput *in)
{
    return in->x.shape[1] == in->stride && (uintptr_t)in->x.data % VEC_BYTES == 0;
}

static Status round_input(Backend *be, CudaInput *in)
{
    int64_t T = in->x.shape[0], K = in->x.shape[1], pairs = in->stride / 2;
    void   *half;
    TRY(cuda_scratch(be, &half, (size_t)(T * in->stride) * sizeof(uint16_t)));
    round_kernel<<<grid_for(T * pairs), BLOCK, 0, cuda_state(be)->stream>>>(
        (__nv_bfloat162 *)half, (const float *)in->x.data, T * pairs, K, pairs);
    in->data = half;
    return cuda_launched("rounding to bf16");
}

static Status spread_input(Backend *be, CudaInput *in)
{
    void *whole;
    TRY(cuda_scratch(be, &whole, (size_t)in->stride * sizeof(float)));
    spread_kernel<<<grid_for(in->stride), BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)whole, (const float *)in->x.data, in->x.shape[1], in->stride);
    in->data = whole;
    return cuda_launched("inputs to whole vectors");
}

Status cuda_input(Backend *be, CudaInput *in, const Tensor *x, const Linear *w)
{
    in->w = w;
    in->x = *x;
    in->data = NULL;
    in->stride = cuda_linear_stride(w->dtype, w->k);
    if (w->bits)
        return OK;
    if (x->shape[0] == 1 && !is_whole(in))
        return spread_input(be, in);
    if (x->shape[0] > 1 && w->dtype == DTYPE_BF16)
        return round_input(be, in);
    in->data = x->data;
    in->stride = x->shape[0] == 1 ? in->stride : w->k;
    return OK;
}

/* --- many rows --- */

/* Columns past 2^16 blocks of them come in further steps. */
static __global__ void bias_kernel(float *y, const float *bias, int64_t n)
{
    float *row = y + (int64_t)blockIdx.x * n;
    for (int64_t i = (int64_t)blockIdx.y * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.y * BLOCK)
        row[i] = bias[i];
}

static Status write_bias(Backend *be, float *y, const float *bias, int64_t T, int64_t n)
{
    dim3 grid((unsigned)T, (unsigned)i64_min(ceil_div(n, 4 * BLOCK), 1024));
    bias_kernel<<<grid, BLOCK, 0, cuda_state(be)->stream>>>(y, bias, n);
    return cuda_launched("rows of bias");
}

static Status many_rows(Backend *be, float *y, const CudaInput *in, const void *w,
                        const float *bias, int64_t n)
{
    int64_t  T = in->x.shape[0];
    CudaGemm g = {};
    g.m = T, g.n = n, g.k = in->w->k;
    g.a = in->data, g.lda = in->stride;
    g.b = w, g.ldb = cuda_linear_stride(in->w->dtype, in->w->k), g.b_t = true;
    g.c = y, g.ldc = n;
    g.half = in->w->dtype == DTYPE_BF16;
    g.tf32 = !g.half && be->tf32;
    g.alpha = 1, g.beta = bias ? 1.0f : 0.0f;
    if (bias)
        TRY(write_bias(be, y, bias, T, n));
    return cuda_gemm(be, &g);
}

Status cuda_linear_block(Backend *be, float *y, const CudaInput *in, int64_t first, int64_t n)
{
    const Linear *w = in->w;
    if (w->bits)
        return cuda_codes_block(be, y, &in->x, w, first, n);
    const void *weights;
    TRY(cuda_weights_here(be, (CudaWeights *)w->packed, &weights));
    size_t row = (size_t)cuda_linear_stride(w->dtype, w->k) * dtype_size(w->dtype);
    const void  *from = (const char *)weights + (size_t)first * row;
    const float *bias = w->bias.data ? (const float *)w->bias.data + first : NULL;
    if (in->x.shape[0] > 1)
        return many_rows(be, y, in, from, bias, n);
    return w->dtype == DTYPE_BF16 ? one_row<uint4>(be, y, in, from, bias, n)
                                  : one_row<float4>(be, y, in, from, bias, n);
}

Status cuda_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w)
{
    int64_t T = x->shape[0], rows = cuda_linear_rows(w, w->n);
    TRY(cuda_begin(be, y));
    if (T == 0)
        return OK;
    if (w->bits)
        return cuda_codes_linear(be, y, x, w);
    CudaBlock *mark = cuda_scratch_mark(be);
    for (int64_t first = 0; first < T; first += rows) {
        Tensor    part = tensor_2d(DTYPE_F32, (float *)x->data + first * w->k,
                                   i64_min(rows, T - first), w->k);
        CudaInput in;
        TRY(cuda_input(be, &in, &part, w));
        TRY(cuda_linear_block(be, (float *)y->data + first * w->n, &in, 0, w->n));
        cuda_scratch_rewind(be, mark);
    }
    return OK;
}
