/* cuda_add.cu - the residual stream.
 * y[i] += x[i]
 * shapes  x, y of one shape, any
 * cost    12 bytes a value: memory bound
 * launch  blocks of 256, four values a thread, as many as there are
 * sums    none
 * NaN     stays
 * test    tests/cuda/test_cuda_rows.c */
#include "kernels/cuda/cuda_launch.cuh"

static __global__ void add_kernel(float *y, const float *x, int64_t n)
{
    for (int64_t i = grid_index(); i < n; i += grid_size())
        y[i] += x[i];
}

Status cuda_add(Backend *be, Tensor *y, const Tensor *x)
{
    TRY(cuda_begin(be, y));
    int64_t n = tensor_count(y);
    if (n == 0)
        return OK;
    add_kernel<<<grid_for(n), BLOCK, 0, cuda_state(be)->stream>>>((float *)y->data,
                                                                  (const float *)x->data, n);
    return cuda_launched("add");
}
