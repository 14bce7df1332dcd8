/* cuda_act.cuh - activations of one value, those of cpu_rows_isa.c bit for bit where the CPU
 * has fused multiply-adds. NaN stays; -inf gives NaN but for relu. */
#ifndef DQ_CUDA_ACT_CUH
#define DQ_CUDA_ACT_CUH

#include "kernels/cuda/cuda_math.cuh"

__device__ inline float act_silu(float x)
{
    return x / (math_exp(-x) + 1);
}

__device__ inline float act_gelu(float x)
{
    return x * math_normal_cdf(x);
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3) */
__device__ inline float act_gelu_tanh(float x)
{
    float cubic = fmaf(x * x * x, 0.044715f, x);
    return x / (math_exp(cubic * -1.5957691216057308f) + 1);
}

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
