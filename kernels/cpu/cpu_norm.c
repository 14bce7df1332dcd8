/* cpu_norm.c - norms of the heads of each row: cpu_norm_isa.c.
 * RMS        y = w x / sqrt(mean x^2 + eps)
 * LayerNorm  y = w (x - m) / sqrt(mean (x - m)^2 + eps) + b
 * shapes  x, y [T, heads * width] f32; w, b [width] or one value for each of a row
 * cost    8TC bytes: memory bound
 * sums    double, 16 lanes a head
 * NaN     any NaN makes its whole head NaN
 * test    tests/kernels/test_norm.c, test_norm_rows.c */
#include "kernels/cpu/cpu_backend.h"

/* That of head h. */
static const float *head_values(const Tensor *t, int64_t h, int64_t width)
{
    const float *values = t->data;
    return values && t->shape[0] != width ? values + h * width : values;
}

Status cpu_norm(Backend *be, Tensor *y, const Tensor *x, int64_t heads, const Norm *n)
{
    int64_t        T = x->shape[0], C = x->shape[1], width = C / heads;
    const NormIsa *isa = cpu_norm_isa();
    const float   *from = x->data;
    float         *to = y->data;
#pragma omp parallel for num_threads(cpu_threads(be, T * C))
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < heads; h++) {
            NormVectors v = {head_values(&n->w, h, width), head_values(&n->b, h, width)};
            int64_t     at = t * C + h * width;
            (n->centred ? isa->centred : isa->rms)(to + at, from + at, &v, width, n->eps);
        }
    return OK;
}
