/* cuda_blas.c - loading cuBLAS, and its one call. */
#include "kernels/cuda/cuda_blas.h"

#include <cublas_v2.h>
#include <dlfcn.h>
#include <string.h>

#define TEXT_OF(x)  #x
#define TEXT(x)     TEXT_OF(x)
#define LIBRARY     "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

/* What is used of it. */
struct CudaBlas {
    cublasHandle_t handle;
    __typeof__(&cublasCreate_v2)       create;
    __typeof__(&cublasDestroy_v2)      destroy;
    __typeof__(&cublasSetStream_v2)    set_stream;
    __typeof__(&cublasSetMathMode)     set_math_mode;
    __typeof__(&cublasGetStatusString) status_string;
    __typeof__(&cublasGemmEx)          gemm_ex;
};

static const struct {
    const char *name;
    size_t      place;
} CALLS[] = {
    {"cublasCreate_v2", offsetof(CudaBlas, create)},
    {"cublasDestroy_v2", offsetof(CudaBlas, destroy)},
    {"cublasSetStream_v2", offsetof(CudaBlas, set_stream)},
    {"cublasSetMathMode", offsetof(CudaBlas, set_math_mode)},
    {"cublasGetStatusString", offsetof(CudaBlas, status_string)},
    {"cublasGemmEx", offsetof(CudaBlas, gemm_ex)},
};

/* --- loading --- */

static Status blas_error(const CudaBlas *b, cublasStatus_t e, const char *call)
{
    return STATUS(ERR_DEVICE, "cuda: %s: %s", call, b->status_string(e));
}

static Status load(CudaBlas *b)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        FAIL(ERR_DEVICE, "cuda: %s; products on the GPU need cuBLAS", dlerror());
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        void *call = dlsym(library, CALLS[i].name);
        if (!call)
            FAIL(ERR_DEVICE, "cuda: %s has no %s", LIBRARY, CALLS[i].name);
        memcpy((char *)b + CALLS[i].place, &call, sizeof call);
    }
    return OK;
}

/* The library stays until the program ends: what was loaded once with kernels of its own may
 * not be unloaded, and C++ in it would leave memory behind. */
static void stop(CudaBlas *b)
{
    if (b->handle)
        (void)b->destroy(b->handle);
}

/* f32 stays f32, and partial sums of bf16 are not rounded to it. */
static Status start(CudaState *st, CudaBlas *b)
{
    TRY(load(b));
    cublasStatus_t e = b->create(&b->handle);
    if (e != CUBLAS_STATUS_SUCCESS)
        return blas_error(b, e, "cublasCreate");
    e = b->set_stream(b->handle, st->stream);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = b->set_math_mode(b->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return e == CUBLAS_STATUS_SUCCESS ? OK : blas_error(b, e, "cublasSetStream");
}

static Status blas_of(Backend *be, CudaBlas **out)
{
    CudaState *st = cuda_state(be);
    if (!st->blas) {
        CudaBlas *b;
        ARENA_NEW(b, &st->arena, 1);
        Status s = start(st, b);
        if (s != OK) {
            stop(b);
            return s;
        }
        st->blas = b;
    }
    *out = st->blas;
    return OK;
}

void cuda_blas_close(CudaState *st)
{
    if (st->blas)
        stop(st->blas);
    st->blas = NULL;
}

/* --- products --- */

static Status check_sizes(const CudaGemm *g)
{
    const int64_t sizes[] = {g->m, g->n, g->k, g->lda, g->ldb, g->ldc};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] > INT32_MAX)
            FAIL(ERR_RANGE, "cuda: a product with a side of %lld, at most %d",
                 (long long)sizes[i], INT32_MAX);
    return OK;
}

static cublasOperation_t operation(bool transposed)
{
    return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* Rows of ours are columns of cuBLAS's: it works out c^T = op(b)^T op(a)^T. */
Status cuda_gemm(Backend *be, const CudaGemm *g)
{
    CudaBlas    *b = NULL;
    cudaDataType type = g->half ? CUDA_R_16BF : CUDA_R_32F;
    TRY(check_sizes(g));
    TRY(blas_of(be, &b));
    cublasStatus_t e = b->gemm_ex(
        b->handle, operation(g->b_t), operation(g->a_t), (int)g->n, (int)g->m, (int)g->k,
        &g->alpha, g->b, type, (int)g->ldb, g->a, type, (int)g->lda, &g->beta, g->c,
        CUDA_R_32F, (int)g->ldc, g->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT);
    return e == CUBLAS_STATUS_SUCCESS ? OK : blas_error(b, e, "cublasGemmEx");
}
