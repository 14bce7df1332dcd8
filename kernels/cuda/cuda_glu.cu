/* cuda_glu.cu - the gate of a feed-forward layer.
 * gate = act(gate) * up, or act(gate); act one of Activation
 * shapes  gate, up [T,F] f32; any
 * cost    12TF bytes, 20 to 50 instructions a value: memory bound
 * launch  blocks of 256, four values a thread at a time
 * sums    none; the bits of CPUs with fused multiply-adds
 * NaN     stays in its place
 * test    tests/cuda/test_cuda_rows.c */
#include "kernels/cuda/cuda_act.cuh"
#include "kernels/cuda/cuda_launch.cuh"

template <Activation ACT>
static __global__ void glu_kernel(float *gate, const float *up, int64_t n)
{
    for (int64_t i = 4 * grid_index(); i < n; i += 4 * grid_size()) {
        Four g = load_four(gate, i, n), u = {{1, 1, 1, 1}};
        if (up)
            u = load_four(up, i, n);
#pragma unroll
        for (int j = 0; j < 4; j++)
            g.v[j] = act<ACT>(g.v[j]) * u.v[j];
        store_four(gate, i, n, g);
    }
}

Status cuda_glu(Backend *be, Tensor *gate, const Tensor *up, Activation act)
{
    static void (*const OF[N_ACTS])(float *, const float *, int64_t) = {
        glu_kernel<ACT_SILU>, glu_kernel<ACT_GELU>, glu_kernel<ACT_GELU_TANH>,
        glu_kernel<ACT_RELU>};
    TRY(cuda_begin(be, gate));
    int64_t n = tensor_count(gate);
    if (n == 0)
        return OK;
    OF[act]<<<grid_for(ceil_div(n, 4)), BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)gate->data, up ? (const float *)up->data : NULL, n);
    return cuda_launched("glu");
}
