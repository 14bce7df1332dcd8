/* cpu_add.c - the residual stream.
 * y += x
 * shapes  x, y of one shape, f32
 * cost    12 bytes an item: memory bound
 * NaN     stays in its place
 * test    tests/kernels/test_embed.c */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/size.h"

Status cpu_add(Backend *be, Tensor *y, const Tensor *x)
{
    enum { PART = 4096 };
    int64_t        n = tensor_count(y);
    const RowsIsa *isa = cpu_rows();
    float         *to = y->data;
    const float   *from = x->data;
#pragma omp parallel for num_threads(cpu_threads(be, n))
    for (int64_t i = 0; i < n; i += PART)
        isa->add(to + i, from + i, i64_min(PART, n - i));
    return OK;
}
