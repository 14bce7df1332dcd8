/* cuda_launch.cuh - how kernels over many values and over rows are laid out, values four at a
 * time, and sums within a warp and a block in a fixed order. */
#ifndef DQ_CUDA_LAUNCH_CUH
#define DQ_CUDA_LAUNCH_CUH

#include "kernels/cuda/cuda_backend.h"
#include "kernels/size.h"

enum { WARP = 32, BLOCK = 256, BLOCK_WARPS = BLOCK / WARP };

/* Blocks for n values of which each thread takes several in steps of grid_size. */
static inline unsigned grid_for(int64_t n)
{
    enum { MOST = 1 << 16 };
    return (unsigned)i64_max(1, i64_min(ceil_div(n, BLOCK), MOST));
}

__device__ inline int64_t grid_index()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline int64_t grid_size()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Threads take values four at a time, 16 bytes in one access where they lie so. Which thread
 * takes which value does not depend on how they lie: neither do sums. */
struct Four {
    float v[4];
};

__device__ inline bool whole_four(const float *x, int64_t i, int64_t n)
{
    return i + 4 <= n && (uintptr_t)(x + i) % sizeof(float4) == 0;
}

/* Values i .. i + 3 of x [n], 0 behind its end. */
__device__ inline Four load_four(const float *x, int64_t i, int64_t n)
{
    Four f;
    if (whole_four(x, i, n)) {
        float4 v = *(const float4 *)(x + i);
        f.v[0] = v.x, f.v[1] = v.y, f.v[2] = v.z, f.v[3] = v.w;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            f.v[j] = i + j < n ? x[i + j] : 0;
    }
    return f;
}

__device__ inline void store_four(float *y, int64_t i, int64_t n, Four f)
{
    if (whole_four(y, i, n)) {
        *(float4 *)(y + i) = make_float4(f.v[0], f.v[1], f.v[2], f.v[3]);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j < n)
                y[i + j] = f.v[j];
    }
}

enum { ALL_LANES = -1 };  // mask of a full warp

/* Every lane gets the sum, added in one order. */
template <class T> __device__ inline T warp_sum(T x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync((unsigned)ALL_LANES, x, step);
    return x;
}

template <class T> __device__ inline T warp_max(T x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        T other = __shfl_xor_sync((unsigned)ALL_LANES, x, step);
        x = other > x ? other : x;
    }
    return x;
}

/* Of a block of BLOCK threads, all of which call; each gets the sum. shared [BLOCK_WARPS] may
 * be used again after the next barrier. */
template <class T> __device__ inline T block_sum(T x, T *shared)
{
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = x;
    __syncthreads();
    T sum = shared[0];
#pragma unroll
    for (int i = 1; i < BLOCK_WARPS; i++)
        sum += shared[i];
    return sum;
}

template <class T> __device__ inline T block_max(T x, T *shared)
{
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = x;
    __syncthreads();
    T max = shared[0];
#pragma unroll
    for (int i = 1; i < BLOCK_WARPS; i++)
        max = shared[i] > max ? shared[i] : max;
    return max;
}

#endif
