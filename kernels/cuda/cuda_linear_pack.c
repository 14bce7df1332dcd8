/* cuda_linear_pack.c - weights of linear layers on their way to where they lie.
 * W [N,K] f32 -> [N,stride] f32 or bf16 (to nearest, ties to even), rows of whole 16 bytes
 * cost    reads 4NK bytes; what has to be rounded or spread goes in pieces of PIECE bytes
 * test    tests/cuda/test_cuda_linear.c */
#include <string.h>

#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_weights.h"
#include "kernels/half.h"
#include "kernels/size.h"

enum { PIECE = 8 << 20 };

static void spread_row(void *to, Dtype dtype, const float *w, int64_t K, int64_t stride)
{
    memset((char *)to + (size_t)K * dtype_size(dtype), 0,
           (size_t)(stride - K) * dtype_size(dtype));
    if (dtype == DTYPE_F32) {
        memcpy(to, w, (size_t)K * sizeof *w);
        return;
    }
    uint16_t *half = to;
    for (int64_t k = 0; k < K; k++)
        half[k] = bf16_from_f32(w[k]);
}

static Status write_rows(Backend *be, CudaWeights *p, const Linear *l, const float *w)
{
    int64_t stride = cuda_linear_stride(l->dtype, l->k);
    size_t  row = (size_t)stride * dtype_size(l->dtype);
    int64_t rows = i64_min(l->n, i64_max(1, PIECE / (int64_t)row));
    char   *piece = arena_raw(&be->arena, rows, row);
    if (!piece)
        FAIL(ERR_MEMORY, "out of memory: weights [%lld,%lld] on their way", (long long)l->n,
             (long long)l->k);
    for (int64_t first = 0; first < l->n; first += rows) {
        int64_t n = i64_min(rows, l->n - first);
#pragma omp parallel for num_threads(be->n_threads)
        for (int64_t i = 0; i < n; i++)
            spread_row(piece + (size_t)i * row, l->dtype, w + (first + i) * l->k, l->k, stride);
        TRY(cuda_weights_write(be, p, (size_t)first * row, piece, (size_t)n * row));
    }
    return OK;
}

Status cuda_pack_bias(Backend *be, Linear *out, const float *bias)
{
    void *device;
    if (!bias)
        return OK;
    TRY(cuda_keep(be, &device, (size_t)out->n * sizeof *bias));
    out->bias = tensor_1d(DTYPE_F32, device, out->n);
    return cuda_send(be, device, bias, tensor_bytes(&out->bias));
}

Status cuda_linear_pack(Backend *be, Linear *out, const float *w, const float *bias)
{
    size_t       bytes;
    int64_t      stride = cuda_linear_stride(out->dtype, out->k);
    CudaWeights *p;
    TRY(cuda_begin(be, NULL));
    if (!size_mul((size_t)out->n, (size_t)stride * dtype_size(out->dtype), &bytes))
        FAIL(ERR_MEMORY, "out of memory: weights [%lld,%lld] as %s", (long long)out->n,
             (long long)out->k, dtype_name(out->dtype));
    TRY(cuda_weights_new(be, &p, bytes));
    out->packed = p;
    if (out->dtype == DTYPE_F32 && stride == out->k) {
        TRY(cuda_weights_write(be, p, 0, w, bytes));
    } else {
        ArenaMark mark = arena_mark(&be->arena);
        Status    s = write_rows(be, p, out, w);
        arena_rewind(&be->arena, mark);
        TRY(s);
    }
    return cuda_pack_bias(be, out, bias);
}
