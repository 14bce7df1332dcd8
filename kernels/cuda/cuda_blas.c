/* cuda_blas.c - loading cuBLAS. */
#include "kernels/cuda/cuda_blas.h"

#include <dlfcn.h>
#include <string.h>

#define TEXT_OF(x)  #x
#define TEXT(x)     TEXT_OF(x)
#define LIBRARY     "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

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

static Status load(CudaBlas *b)
{
    b->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!b->library)
        FAIL(ERR_DEVICE, "cuda: %s; products on the GPU need cuBLAS", dlerror());
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        void *call = dlsym(b->library, CALLS[i].name);
        if (!call)
            FAIL(ERR_DEVICE, "cuda: %s has no %s", LIBRARY, CALLS[i].name);
        memcpy((char *)b + CALLS[i].place, &call, sizeof call);
    }
    return OK;
}

static Status start(CudaState *st, CudaBlas *b)
{
    TRY(load(b));
    cublasStatus_t e = b->create(&b->handle);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = b->set_stream(b->handle, st->stream);
    return e == CUBLAS_STATUS_SUCCESS ? OK : cuda_blas_error(b, e, "cublasCreate");
}

Status cuda_blas(Backend *be, CudaBlas **out)
{
    CudaState *st = cuda_state(be);
    if (!st->blas) {
        CudaBlas *b;
        ARENA_NEW(b, &st->arena, 1);
        Status s = start(st, b);
        if (s != OK) {
            if (b->library)
                dlclose(b->library);
            return s;
        }
        st->blas = b;
    }
    *out = st->blas;
    return OK;
}

void cuda_blas_close(CudaState *st)
{
    if (!st->blas)
        return;
    (void)st->blas->destroy(st->blas->handle);
    dlclose(st->blas->library);
    st->blas = NULL;
}

Status cuda_blas_error(const CudaBlas *blas, cublasStatus_t e, const char *call)
{
    return STATUS(ERR_DEVICE, "cuda: %s: %s", call, blas->status_string(e));
}
