/* cuda_launch.cuh - how kernels over many values and over rows are laid out, and sums within a
 * warp and a block in a fixed order. */
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
