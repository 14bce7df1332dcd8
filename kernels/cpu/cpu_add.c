/* cpu_add.c - the residual stream, and what is small beside it.
 * add      y += x
 * copy     y = x
 * sigmoid  x = 1 / (1 + exp(-x)), in double
 * shapes   x, y of one shape, f32
 * cost     12 and 8 bytes an item: memory bound; sigmoid: an exp an item, of one item a head
 * NaN      stays in its place
 * test     tests/kernels/test_embed.c */
#include <math.h>
#include <string.h>

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

Status cpu_copy(Backend *be, Tensor *y, const Tensor *x)
{
    (void)be;
    memcpy(y->data, x->data, tensor_bytes(x));
    return OK;
}

Status cpu_sigmoid(Backend *be, Tensor *x)
{
    int64_t n = tensor_count(x);
    float  *at = x->data;
#pragma omp parallel for num_threads(cpu_threads(be, n))
    for (int64_t i = 0; i < n; i++)
        at[i] = (float)(1 / (1 + exp(-(double)at[i])));
    return OK;
}
