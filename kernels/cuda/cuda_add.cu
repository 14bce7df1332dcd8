/* cuda_add.cu - the residual stream, and what is small beside it.
 * add      y += x
 * copy     y = x
 * sigmoid  x = 1 / (1 + exp(-x)), in double
 * shapes   x, y of one shape, f32; any
 * cost     12 and 8 bytes a value: memory bound; sigmoid: an exp a value, of one value a head
 * launch   blocks of 256, four values a thread at a time
 * sums     none
 * NaN      stays in its place
 * test     tests/cuda/test_cuda_rows.c */
#include "kernels/cuda/cuda_launch.cuh"

static __global__ void add_kernel(float *y, const float *x, int64_t n)
{
    for (int64_t i = 4 * grid_index(); i < n; i += 4 * grid_size()) {
        Four a = load_four(y, i, n), b = load_four(x, i, n);
#pragma unroll
        for (int j = 0; j < 4; j++)
            a.v[j] += b.v[j];
        store_four(y, i, n, a);
    }
}

Status cuda_add(Backend *be, Tensor *y, const Tensor *x)
{
    TRY(cuda_begin(be, y));
    int64_t n = tensor_count(y);
    if (n == 0)
        return OK;
    add_kernel<<<grid_for(ceil_div(n, 4)), BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)y->data, (const float *)x->data, n);
    return cuda_launched("add");
}

static __global__ void copy_kernel(float *y, const float *x, int64_t n)
{
    for (int64_t i = 4 * grid_index(); i < n; i += 4 * grid_size())
        store_four(y, i, n, load_four(x, i, n));
}

Status cuda_copy(Backend *be, Tensor *y, const Tensor *x)
{
    TRY(cuda_begin(be, y));
    int64_t n = tensor_count(y);
    if (n == 0)
        return OK;
    copy_kernel<<<grid_for(ceil_div(n, 4)), BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)y->data, (const float *)x->data, n);
    return cuda_launched("copy");
}

static __global__ void sigmoid_kernel(float *x, int64_t n)
{
    for (int64_t i = grid_index(); i < n; i += grid_size())
        x[i] = (float)(1 / (1 + exp(-(double)x[i])));
}

Status cuda_sigmoid(Backend *be, Tensor *x)
{
    TRY(cuda_begin(be, x));
    int64_t n = tensor_count(x);
    if (n == 0)
        return OK;
    sigmoid_kernel<<<grid_for(n), BLOCK, 0, cuda_state(be)->stream>>>((float *)x->data, n);
    return cuda_launched("sigmoid");
}
