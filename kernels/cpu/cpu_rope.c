/* cpu_rope.c - rotary positions, in place.
 * (a, b) = (x[i], x[i + half]) of each head turns to (a c - b s, b c + a s),
 * c and s from row positions[t] of cs and sn; dims from 2 half on pass
 * shapes  x [T, heads*d], cs, sn [P, half], 2 half <= d
 * cost    8T heads d bytes: memory bound
 * NaN     makes its pair NaN
 * test    tests/kernels/test_op_rope.c */
#include "kernels/cpu/cpu_backend.h"

Status cpu_rope(Backend *be, Tensor *x, int64_t heads, const Tensor *cs, const Tensor *sn,
                const int32_t *positions)
{
    int64_t        T = x->shape[0], row = x->shape[1], half = cs->shape[1];
    const RowsIsa *isa = cpu_rows();
    float         *data = x->data;
    const float   *c = cs->data, *s = sn->data;
#pragma omp parallel for num_threads(cpu_threads(be, T * row))
    for (int64_t t = 0; t < T; t++) {
        int64_t angle = positions[t] * half;
        for (int64_t h = 0; h < heads; h++)
            isa->rope(data + t * row + h * (row / heads), half, c + angle, s + angle);
    }
    return OK;
}
