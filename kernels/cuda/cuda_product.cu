/* cuda_product.cu - general products, by cuBLAS.
 * c = alpha op(a) op(b) + beta c
 * shapes  a [m,k] or [k,m], b [k,n] or [n,k], c [m,n] f32, rows lda, ldb, ldc apart
 * cost    2 m n k flops
 * launch  cuBLAS in f32, never TF32: factorizations lose what they are there for; a kernel of
 *         blocks of 256 where there is nothing to add
 * sums    f32 in cuBLAS's order, for which the shape and the alignment decide
 * NaN     goes through; alpha 0 does not read a and b, beta 0 does not read c
 * test    tests/cuda/test_cuda_linear.c */
#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/cuda_launch.cuh"

/* c = beta c, what is left when there is nothing to add. */
static __global__ void scale_kernel(float *c, int64_t n, int64_t columns, int64_t ldc,
                                    float beta)
{
    for (int64_t i = grid_index(); i < n; i += grid_size()) {
        float *p = c + i / columns * ldc + i % columns;
        *p = beta == 0 ? 0 : beta * *p;
    }
}

Status cuda_product(Backend *be, const MatrixProduct *p)
{
    Tensor c = tensor_1d(DTYPE_F32, p->c, (p->m - 1) * p->ldc + p->n);
    TRY(cuda_begin(be, &c));
    if (p->k == 0 || p->alpha == 0) {
        int64_t n = p->m * p->n;
        scale_kernel<<<grid_for(n), BLOCK, 0, cuda_state(be)->stream>>>(p->c, n, p->n, p->ldc,
                                                                        p->beta);
        return cuda_launched("product");
    }
    CudaGemm g = {};
    g.m = p->m, g.n = p->n, g.k = p->k;
    g.a = p->a, g.lda = p->lda, g.a_t = p->a_t;
    g.b = p->b, g.ldb = p->ldb, g.b_t = p->b_t;
    g.c = p->c, g.ldc = p->ldc;
    g.alpha = p->alpha, g.beta = p->beta;
    return cuda_gemm(be, &g);
}
