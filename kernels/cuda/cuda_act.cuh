/* cuda_act.cuh - activations of one value; exp and erfc are CUDA's accurate ones. */
#ifndef DQ_CUDA_ACT_CUH
#define DQ_CUDA_ACT_CUH

#include "kernels/cuda/cuda_backend.h"

/* x / (1 + exp(z)); what exp gives below -87 is nothing beside 1. */
__device__ inline float act_over(float x, float z)
{
    return x / (1 + expf(fmaxf(-87, z)));
}

/* -inf gives NaN, as on the CPU. */
__device__ inline float act_silu(float x)
{
    return act_over(x, -x);
}

/* x Phi(x), Phi with all its digits at either end: beyond -13 it is 0 but for subnormals, from
 * 6 on it is 1. */
__device__ inline float act_gelu(float x)
{
    return x * (x < -13 ? 0 : normcdff(fminf(x, 6)));
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3) */
__device__ inline float act_gelu_tanh(float x)
{
    return act_over(x, -1.5957691216057308f * fmaf(x * x * x, 0.044715f, x));
}

/* NaN stays. */
__device__ inline float act_relu(float x)
{
    return x <= 0 ? 0 : x;
}

template <Activation ACT> __device__ inline float act(float x)
{
    if (ACT == ACT_SILU)
        return act_silu(x);
    if (ACT == ACT_GELU)
        return act_gelu(x);
    if (ACT == ACT_GELU_TANH)
        return act_gelu_tanh(x);
    return act_relu(x);
}

#endif
