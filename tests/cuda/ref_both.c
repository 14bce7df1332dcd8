/* ref_both.c - tensors on the host and on the GPU. */
#include "tests/cuda/ref_both.h"

#include <string.h>

#include "tests/kernels/ref_ops.h"

Status both_normal(Backend *be, Arena *a, Both *b, int64_t rows, int64_t cols, uint64_t seed)
{
    b->host = ref_normal(a, rows, cols, seed);
    return ref_cuda_empty(be, &b->gpu, rows, cols, (int64_t)(seed % 4));
}

Status both_zeros(Backend *be, Arena *a, Both *b, int64_t rows, int64_t cols)
{
    TRY(both_normal(be, a, b, rows, cols, 11));
    memset(b->host.data, 0, tensor_bytes(&b->host));
    return both_send(be, b);
}

Status both_send(Backend *be, Both *b)
{
    return backend_upload(be, &b->gpu, b->host.data);
}

bool both_fetch(Backend *be, Both *b)
{
    bool whole;
    return ref_cuda_read(be, both_values(b), &b->gpu, &whole) == OK && whole;
}

Tensor ref_vector(const Tensor *t)
{
    return tensor_1d(DTYPE_F32, t->data, tensor_count(t));
}
