/* cuda_gram.c - x^T x of rows: products on the GPU, parts added in double on the host.
 * gram[i,j] += sum_t x[t,i] x[t,j],  j >= i
 * shapes  x [T,K] f32 of the device, gram [K,K] double of the host; any T, K
 * cost    T K^2 flops and some more along the diagonal; 2 K^2 bytes come back for each part
 * sums    f32 over a part in cuBLAS's order, parts in double, in order
 * NaN     goes through
 * test    tests/cuda/test_cuda_product.c */
#include "kernels/cuda/cuda_backend.h"
#include "kernels/size.h"

enum { PART = GRAM_PART, ROWS = 512 };  // of x, and of the gram, at a time

typedef struct {
    double *gram;
    int64_t K;
    Tensor  product;   // [ROWS * K]
    float  *host;      // the same
} Gram;

/* Rows first .. first + n of the gram, from column `first` on. */
static Status add_rows(const Gram *g, Backend *be, const float *x, int64_t T, int64_t first,
                       int64_t n)
{
    int64_t       K = g->K, cols = K - first;
    Tensor        part = tensor_2d(DTYPE_F32, g->product.data, n, cols);
    MatrixProduct p = {.m = n, .n = cols, .k = T, .alpha = 1, .a = x + first, .lda = K,
                       .a_t = true, .b = x + first, .ldb = K, .c = part.data, .ldc = cols};
    TRY(cuda_product(be, &p));
    TRY(cuda_download(be, g->host, &part));
#pragma omp parallel for schedule(static) num_threads(be->n_threads)
    for (int64_t i = 0; i < n; i++) {
        double      *to = g->gram + (first + i) * K + first;
        const float *from = g->host + i * cols;
        for (int64_t j = i; j < cols; j++)
            to[j] += (double)from[j];
    }
    return OK;
}

static Status add(Gram *g, Backend *be, const Tensor *x)
{
    int64_t rows = i64_min(ROWS, g->K);
    TRY(backend_tensor(be, &g->product, 1, (int64_t[]){rows * g->K}));
    g->host = arena_raw(&be->arena, rows * g->K, sizeof *g->host);
    if (!g->host)
        FAIL(ERR_MEMORY, "out of memory: products of %lld inputs", (long long)g->K);
    for (int64_t t = 0; t < x->shape[0]; t += PART)
        for (int64_t i = 0; i < g->K; i += ROWS)
            TRY(add_rows(g, be, (const float *)x->data + t * g->K,
                         i64_min(PART, x->shape[0] - t), i, i64_min(ROWS, g->K - i)));
    return OK;
}

Status cuda_gram(Backend *be, double *gram, const Tensor *x, Dtype dtype)
{
    (void)dtype;  // f32 is fast enough
    ArenaMark mark = backend_mark(be);
    Gram      g = {.gram = gram, .K = x->shape[1]};
    Status    s = add(&g, be, x);
    backend_rewind(be, mark);
    return s;
}
