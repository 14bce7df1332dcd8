/* cpu_glu.c - the gate of a feed-forward layer.
 * gate = act(gate) * up, act one of Activation: cpu_rows_isa.c
 * shapes  gate, up [T,F] f32
 * cost    12TF bytes, about 20 flops an item: memory bound
 * NaN     stays in its place
 * test    tests/kernels/test_glu.c */
#include "kernels/cpu/cpu_backend.h"

Status cpu_glu(Backend *be, Tensor *gate, const Tensor *up, Activation act)
{
    int64_t T = gate->shape[0], F = gate->shape[1];
    void  (*glu)(float *, const float *, int64_t) = cpu_rows()->glu[act];
    float  *g = gate->data;
    const float *u = up->data;
#pragma omp parallel for num_threads(cpu_threads(be, T * F))
    for (int64_t t = 0; t < T; t++)
        glu(g + t * F, u + t * F, F);
    return OK;
}
