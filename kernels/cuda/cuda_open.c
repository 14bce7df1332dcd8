/* cuda_open.c - the table of the CUDA backend; finding the device and saying why it is not
 * there. */
#include <stdio.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_blas.h"
#include "kernels/cuda/cuda_weights.h"

enum { LEAST_CAPABILITY = 80 };  // bf16 in tensor cores, cp.async

const bool cuda_built = true;

static void cuda_close(Backend *be)
{
    CudaState *st = cuda_state(be);
    if (cudaSetDevice(st->device) != cudaSuccess)
        (void)cudaGetLastError();  // of a device that is not there
    if (st->stream)
        (void)cudaStreamSynchronize(st->stream);
    cuda_weights_close(be);
    cuda_blas_close(st);
    cuda_memory_close(st);
    if (st->ahead)
        (void)cudaStreamDestroy(st->ahead);
    if (st->stream)
        (void)cudaStreamDestroy(st->stream);
    arena_close(&st->arena);
}

static void cuda_limit(Backend *be, size_t bytes)
{
    cuda_state(be)->limit = bytes;
}

static const BackendOps CUDA_OPS = {
    .name = "cuda",
    .close = cuda_close,
    .alloc = cuda_alloc,
    .rewind = cuda_rewind,
    .limit = cuda_limit,
    .upload = cuda_upload,
    .download = cuda_download,
    .linear_pack = cuda_linear_pack,
    .linear_codes = cuda_linear_codes,
    .linear = cuda_linear,
    .product = cuda_product,
    .gram = cuda_gram,
    .embed = cuda_embed,
    .norm = cuda_norm,
    .rope = cuda_rope,
    .attention = cuda_attention,
    .glu = cuda_glu,
    .poly_glu = cuda_poly_glu,
    .convolve = cuda_convolve,
    .scan = cuda_scan,
    .add = cuda_add,
    .copy = cuda_copy,
    .sigmoid = cuda_sigmoid,
    .fakequant_rows = cuda_fakequant_rows,
    .fakequant_kv = cuda_fakequant_kv,
    .record = cuda_record,
    .score = cuda_score,
    .divergence = cuda_divergence,
};

/* Why there is no device, in words of what to do about it. */
static Status no_device(cudaError_t e)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        FAIL(ERR_DEVICE, "no CUDA device: NVIDIA's driver is not installed or not loaded; use "
             "--device cpu");
    if (e == cudaErrorInsufficientDriver)
        FAIL(ERR_DEVICE, "no CUDA device: NVIDIA's driver speaks CUDA %d.%d, this diffquant "
             "needs %d.%d; update the driver or use --device cpu", driver / 1000,
             driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    FAIL(ERR_DEVICE, "no CUDA device: %s; use --device cpu",
         e == cudaSuccess ? "this machine has none" : cudaGetErrorString(e));
}

static Status check_device(CudaState *st, int n)
{
    struct cudaDeviceProp p;
    if (st->device >= n)
        FAIL(ERR_DEVICE, "no CUDA device %d: there are %d, from 0", st->device, n);
    CUDA_TRY(cudaGetDeviceProperties(&p, st->device));
    st->capability = 10 * p.major + p.minor;
    st->n_multiprocessors = p.multiProcessorCount;
    st->shared_most = p.sharedMemPerBlockOptin;
    snprintf(st->name, sizeof st->name, "%s", p.name);
    if (st->capability < LEAST_CAPABILITY)
        FAIL(ERR_DEVICE, "CUDA device %d, %s, has compute capability %d.%d, the kernels need "
             "%d.%d; use --device cpu", st->device, p.name, p.major, p.minor,
             LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
    return OK;
}

static Status open_state(CudaState *st)
{
    int         n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n < 1) {
        (void)cudaGetLastError();
        return no_device(e);
    }
    TRY(check_device(st, n));
    CUDA_TRY(cudaSetDevice(st->device));
    CUDA_TRY(cudaStreamCreateWithFlags(&st->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&st->ahead, cudaStreamNonBlocking));
    return cuda_stage_open(st);
}

Status cuda_open(Backend *be, int device)
{
    CudaState *st;
    ARENA_NEW(st, &be->arena, 1);
    st->device = device;
    st->limit = SIZE_MAX;
    be->state = st;
    be->ops = &CUDA_OPS;
    TRY(open_state(st));
    be->device = arena_printf(&be->arena, "cuda:%d %s", device, st->name);
    return be->device ? OK : STATUS(ERR_MEMORY, "out of memory");
}
