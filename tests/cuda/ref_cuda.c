/* ref_cuda.c - tensors on the GPU between guards. */
#include "tests/cuda/ref_cuda.h"

#include <math.h>
#include <string.h>

#include "kernels/half.h"

enum { EDGE = 64, GUARD_BITS = 0x7fc0dead };  // a NaN that nothing computes

bool ref_cuda_there(void)
{
    Backend be;
    Status  s = backend_open(&be, "cuda", 1);
    if (s == OK)
        backend_close(&be);
    return s != ERR_DEVICE || strncmp(status_text(), "no CUDA device", 14) != 0;
}

static float guard(void)
{
    return f32_from_bits(GUARD_BITS);
}

/* The memory around a tensor. */
static Tensor around(const Tensor *t)
{
    return tensor_1d(DTYPE_F32, (float *)t->data - EDGE, tensor_count(t) + 2 * EDGE);
}

Status ref_cuda_tensor(Backend *be, Tensor *t, const float *host, int64_t rows, int64_t cols,
                       int64_t shift)
{
    Arena   arena = {0};
    Tensor  all;
    int64_t n = rows * cols;
    Status  s = OK;
    GUARD(backend_tensor(be, &all, 1, (int64_t[]){n + 3 * EDGE}));
    float *p = arena_alloc(&arena, n + 2 * EDGE, sizeof *p);
    for (int64_t i = 0; p && i < n + 2 * EDGE; i++)
        p[i] = i < EDGE || i >= EDGE + n ? guard() : host ? host[i - EDGE] : NAN;
    *t = tensor_2d(DTYPE_F32, (float *)all.data + EDGE + shift, rows, cols);
    all = around(t);
    s = p ? backend_upload(be, &all, p) : STATUS(ERR_MEMORY, "out of memory");
out:
    arena_close(&arena);
    return s;
}

Status ref_cuda_empty(Backend *be, Tensor *t, int64_t rows, int64_t cols, int64_t shift)
{
    return ref_cuda_tensor(be, t, NULL, rows, cols, shift);
}

Status ref_cuda_exact(Backend *be, Tensor *t, const float *host, int64_t rows, int64_t cols)
{
    TRY(backend_tensor(be, t, 2, (int64_t[]){rows, cols}));
    return backend_upload(be, t, host);
}

Status ref_cuda_read(Backend *be, float *host, const Tensor *t, bool *guards_hold)
{
    Arena   arena = {0};
    Tensor  all = around(t);
    int64_t n = tensor_count(t);
    float  *p = arena_alloc(&arena, n + 2 * EDGE, sizeof *p);
    Status  s = p ? backend_download(be, p, &all) : STATUS(ERR_MEMORY, "out of memory");
    *guards_hold = s == OK;
    for (int64_t i = 0; s == OK && i < EDGE; i++)
        *guards_hold = *guards_hold && f32_bits(p[i]) == GUARD_BITS &&
                       f32_bits(p[EDGE + n + i]) == GUARD_BITS;
    if (s == OK)
        memcpy(host, p + EDGE, (size_t)n * sizeof *host);
    arena_close(&arena);
    return s;
}
