/* cuda_twin.c - the 8-bit codes of one tensor at a time, in memory that lasts as long as the
 * pass that it is taken in.
 * memory  [T, K up to 64] bytes and [T] floats; a larger twin takes more, a smaller one fits
 * test    tests/cuda/test_cuda_int8.c */
#include "kernels/cuda/cuda_twin.h"

#include "kernels/size.h"

Status cuda_twin_want(Backend *be)
{
    CudaState *st = cuda_state(be);
    if (!st->twin)
        ARENA_NEW(st->twin, &st->arena, 1);
    return OK;
}

Status cuda_twin_open(Backend *be, CudaTwin **out, const Tensor *x)
{
    CudaTwin *w = cuda_state(be)->twin;
    int64_t   T = x->shape[0], K = x->shape[1], row_bytes = ceil_div(K, 64) * 64;
    size_t    scales = (size_t)ceil_div(T, 64) * 64 * sizeof(float);
    size_t    bytes = scales + (size_t)(T * row_bytes);
    *out = NULL;
    if (!w)
        return OK;
    w->x = NULL;
    if (!w->memory || w->bytes < bytes) {
        TRY(cuda_keep(be, &w->memory, bytes));
        w->bytes = bytes;
        w->used_at = be->arena.used;
    }
    w->scales = w->memory;
    w->codes = (int8_t *)w->memory + scales;
    w->T = T;
    w->K = K;
    w->row_bytes = row_bytes;
    if (row_bytes > K)
        TRY(cuda_zero(be, w->codes, (size_t)(T * row_bytes)));
    w->x = x->data;
    *out = w;
    return OK;
}

const CudaTwin *cuda_twin_of(const CudaState *st, const Tensor *x)
{
    const CudaTwin *w = st->twin;
    return w && w->x && w->x == x->data && w->T == x->shape[0] && w->K == x->shape[1] ? w
                                                                                     : NULL;
}

void cuda_twin_forget(CudaState *st, const Tensor *t)
{
    CudaTwin *w = st->twin;
    if (!w || !w->x)
        return;
    uintptr_t from = (uintptr_t)w->x, end = from + (size_t)(w->T * w->K) * sizeof(float);
    uintptr_t at = (uintptr_t)t->data;
    if (at < end && from < at + tensor_bytes(t))
        w->x = NULL;
}

/* x itself may be what is given back: what takes its place is another tensor. */
void cuda_twin_rewind(CudaState *st, ArenaMark mark)
{
    CudaTwin *w = st->twin;
    if (!w)
        return;
    w->x = NULL;
    if (w->memory && w->used_at > mark.used)
        w->memory = NULL;
}
