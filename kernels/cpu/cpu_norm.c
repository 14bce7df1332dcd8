/* cpu_norm.c - RMSNorm over the last dim.
 * y[t,c] = x[t,c] * w[c] / sqrt(mean_c x^2 + eps); y may be x
 * shapes  x, y [T,C] f32, w [C]; any T, C >= 1
 * cost    8TC bytes: memory bound
 * sums    double, 16 lanes a row (cpu_rows_isa.c)
 * NaN     any NaN makes its whole row NaN
 * test    tests/kernels/test_norm.c */
#include "kernels/cpu/cpu_backend.h"

Status cpu_rmsnorm(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, float eps)
{
    int64_t        T = x->shape[0], C = x->shape[1];
    const RowsIsa *isa = cpu_rows();
    const float   *from = x->data;
    float         *to = y->data;
#pragma omp parallel for num_threads(cpu_threads(be, T * C))
    for (int64_t t = 0; t < T; t++)
        isa->rmsnorm(to + t * C, from + t * C, w->data, C, eps);
    return OK;
}
