/* cpu_glu.c - the gate of a feed-forward layer.
 * glu       gate = act(gate) * up, or act(gate); act one of Activation: cpu_rows_isa.c
 * poly_glu  gate = PolyNorm(gate) * up: cpu_norm_isa.c
 * shapes    gate, up [T,F] f32
 * cost      12TF bytes, about 20 flops an item: memory bound; poly_glu reads a row twice, the
 *           second time from the nearest cache
 * NaN       stays in its place; poly_glu: makes its row NaN
 * test      tests/kernels/test_glu.c, test_poly_glu.c */
#include "kernels/cpu/cpu_backend.h"

Status cpu_glu(Backend *be, Tensor *gate, const Tensor *up, Activation act)
{
    int64_t T = gate->shape[0], F = gate->shape[1];
    void  (*glu)(float *, const float *, int64_t) = cpu_rows()->glu[act];
    float  *g = gate->data;
    const float *u = up ? up->data : NULL;
#pragma omp parallel for num_threads(cpu_threads(be, T * F))
    for (int64_t t = 0; t < T; t++)
        glu(g + t * F, u ? u + t * F : NULL, F);
    return OK;
}

Status cpu_poly_glu(Backend *be, Tensor *gate, const Tensor *up, const float poly[4])
{
    int64_t        T = gate->shape[0], F = gate->shape[1];
    const NormIsa *isa = cpu_norm_isa();
    float         *g = gate->data;
    const float   *u = up->data;
#pragma omp parallel for num_threads(cpu_threads(be, T * F))
    for (int64_t t = 0; t < T; t++)
        isa->poly_glu(g + t * F, u + t * F, poly, F);
    return OK;
}
