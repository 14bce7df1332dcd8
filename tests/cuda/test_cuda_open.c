/* test_cuda_open.c - opening a GPU, and its memory: used again, given back, used up; the way
 * there and back of what is larger than the stage between. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

/* --- the runtime's calls that take and give back, on their way there --- */

static int n_held;     // memory, streams, events that were taken and not given back
static int fail_in;    // the so manieth call that takes fails; 0: none

static bool fails_now(void)
{
    return fail_in && --fail_in == 0;
}

#define CALL(name, change, params, args)                                 \
    cudaError_t name params                                              \
    {                                                                    \
        cudaError_t (*real) params;                                      \
        void *found = dlsym(RTLD_NEXT, #name);                           \
        memcpy(&real, &found, sizeof real);                              \
        if ((change) > 0 && fails_now())                                 \
            return cudaErrorMemoryAllocation;                            \
        cudaError_t e = real args;                                       \
        n_held += e == cudaSuccess ? (change) : 0;                       \
        return e;                                                        \
    }

CALL(cudaMalloc, 1, (void **p, size_t bytes), (p, bytes))
CALL(cudaFree, -1, (void *p), (p))
CALL(cudaHostAlloc, 1, (void **p, size_t bytes, unsigned flags), (p, bytes, flags))
CALL(cudaFreeHost, -1, (void *p), (p))
CALL(cudaStreamCreateWithFlags, 1, (cudaStream_t *p, unsigned flags), (p, flags))
CALL(cudaStreamDestroy, -1, (cudaStream_t p), (p))
CALL(cudaEventCreateWithFlags, 1, (cudaEvent_t *p, unsigned flags), (p, flags))
CALL(cudaEventDestroy, -1, (cudaEvent_t p), (p))

/* --- opening --- */

TEST(backend_opens_a_gpu_by_name)
{
    static const char *const NAMES[] = {"cuda", "cuda:0"};
    Backend be;
    T_GPU(&be);
    backend_close(&be);
    for (int i = 0; i < 2; i++) {
        T_STATUS_OK(backend_open(&be, NAMES[i], 1));
        T_TEXT(be.ops->name, "cuda");
        T_OK(cuda_state(&be)->device == 0 && cuda_state(&be)->capability >= 80);
        T_OK(cuda_state(&be)->n_multiprocessors > 0 && cuda_state(&be)->name[0]);
        backend_close(&be);
        T_OK(!be.ops && !be.state && n_held == 0);
        backend_close(&be);
    }
}

TEST(backend_names_a_gpu_that_is_not_there)
{
    Backend be;
    T_GPU(&be);
    backend_close(&be);
    T_FAILS(backend_open(&be, "cuda:99", 1), ERR_DEVICE, "no CUDA device 99: there are ");
    int n = 0;
    char name[32];
    T_OK(cudaGetDeviceCount(&n) == cudaSuccess);
    snprintf(name, sizeof name, "cuda:%d", n);  // the first that is not there
    T_FAILS(backend_open(&be, name, 1), ERR_DEVICE, "no CUDA device ");
    T_FAILS(backend_open(&be, "cuda:x", 1), ERR_USAGE,
            "unknown device \"cuda:x\", expected cpu, cuda, cuda:N or auto");
    T_FAILS(backend_open(&be, "cuda:1000", 1), ERR_USAGE, "unknown device \"cuda:1000\"");
    T_FAILS(backend_open(&be, "cuda:-1", 1), ERR_USAGE, "unknown device \"cuda:-1\"");
    T_OK(!be.ops && n_held == 0);
    T_OK(cudaGetLastError() == cudaSuccess);   // nor does a kernel hear of it later
}

TEST(failures_are_told_once)
{
    Backend be;
    T_GPU(&be);
    T_FAILS(cuda_error(cudaSetDevice(99), "cudaSetDevice(99)"), ERR_DEVICE,
            "cuda: cudaSetDevice: ");
    T_STATUS_OK(cuda_launched("none"));
    T_FAILS(cuda_error(cudaErrorMemoryAllocation, "cudaMalloc"), ERR_MEMORY,
            "cuda: cudaMalloc: ");
    backend_close(&be);
}

TEST(backend_auto_takes_the_gpu)
{
    Backend be;
    T_GPU(&be);
    backend_close(&be);
    T_STATUS_OK(backend_open(&be, "auto", 1));
    T_TEXT(be.ops->name, "cuda");
    backend_close(&be);
}

/* Of the host's memory, then of the runtime's calls: the first, the second, ... */
static Status open_failing_at(Backend *be, int k, bool call)
{
    arena_fail_at(call ? 0 : k);
    fail_in = call ? k : 0;
    Status s = backend_open(be, "cuda", 1);
    arena_fail_at(0);
    return s;
}

TEST(backend_open_survives_every_failure)
{
    Backend be;
    T_GPU(&be);
    backend_close(&be);
    for (int call = 0; call < 2; call++) {
        Status s = ERR_MEMORY;
        for (int k = 1; k < 20 && s == ERR_MEMORY; k++) {
            s = open_failing_at(&be, k, call);
            T_OK(s == OK || (!be.ops && !be.arena.top && n_held == 0));
            T_OK(k > 1 || s == ERR_MEMORY);
        }
        T_OK(s == OK);
        fail_in = 0;
        backend_close(&be);
        T_OK(n_held == 0);
    }
}

/* --- memory --- */

static Status row_of(Backend *be, Tensor *t, int64_t n)
{
    return backend_tensor(be, t, 1, &n);
}

TEST(memory_given_back_is_used_again)
{
    Backend be;
    Tensor  kept, a, b, c;
    T_GPU(&be);
    T_STATUS_OK(row_of(&be, &kept, 1000));
    ArenaMark mark = backend_mark(&be);
    T_STATUS_OK(row_of(&be, &a, 1000));
    T_STATUS_OK(row_of(&be, &b, 2000));
    T_OK(a.data != kept.data);
    size_t held = cuda_state(&be)->held;
    T_OK(held == 4000 * sizeof(float));
    void *first = a.data, *second = b.data;
    for (int i = 0; i < 3; i++) {
        backend_rewind(&be, mark);
        T_STATUS_OK(row_of(&be, &b, 1990));   // about that size
        T_STATUS_OK(row_of(&be, &a, 1000));
        T_OK(a.data == first && b.data == second && cuda_state(&be)->held == held);
    }
    T_STATUS_OK(row_of(&be, &c, 1000));       // nothing is left
    T_OK(c.data != first && c.data != kept.data && cuda_state(&be)->held > held);
    backend_rewind(&be, mark);
    T_STATUS_OK(row_of(&be, &b, 500));        // much too large a piece waits longer
    T_OK(b.data != first && b.data != second && b.data != c.data);
    backend_close(&be);
    T_OK(n_held == 0);
}

/* Older tensors stay; their numbers too. */
TEST(rewind_gives_back_what_came_after_its_mark)
{
    enum { N = 300 };
    float   in[N], got[N];
    Backend be;
    Tensor  a, b;
    T_GPU(&be);
    for (int i = 0; i < N; i++)
        in[i] = (float)i;
    T_STATUS_OK(row_of(&be, &a, N));
    T_STATUS_OK(backend_upload(&be, &a, in));
    for (int i = 0; i < 3; i++) {
        ArenaMark mark = backend_mark(&be);
        memset(got, 0xff, sizeof got);
        T_STATUS_OK(row_of(&be, &b, N));
        T_STATUS_OK(backend_upload(&be, &b, got));
        backend_rewind(&be, mark);
    }
    T_STATUS_OK(backend_download(&be, got, &a));
    T_OK(memcmp(in, got, sizeof in) == 0);
    backend_close(&be);
}

/* What an operation takes for itself is there for the next one, what a part of it takes for the
 * next part. */
TEST(scratch_ends_with_the_next_operation)
{
    Backend be;
    void   *scratch;
    T_GPU(&be);
    for (int i = 0; i < 5; i++) {
        T_STATUS_OK(cuda_begin(&be, NULL));
        T_STATUS_OK(cuda_scratch(&be, &scratch, 3000));
        T_STATUS_OK(cuda_scratch(&be, &scratch, 1000));
        T_OK(cuda_state(&be)->held == 4000);
        CudaBlock *mark = cuda_scratch_mark(&be);
        for (int j = 0; j < 2; j++) {
            T_STATUS_OK(cuda_scratch(&be, &scratch, 500));
            cuda_scratch_rewind(&be, mark);
        }
        cuda_trim(cuda_state(&be));
        T_OK(cuda_state(&be)->held == 4000);
    }
    backend_close(&be);
}

/* With tensors, weights, what waits to be used again, and the scratch of an operation. */
TEST(close_gives_everything_back)
{
    Backend be;
    Linear  w;
    Tensor  a, b;
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_empty(&be, &a, 3, 8, 0));
    T_STATUS_OK(op_linear_pack(&be, &w, (const float[]){1, 2, 3, 4}, NULL, 1, 4, DTYPE_F32));
    ArenaMark mark = backend_mark(&be);
    T_STATUS_OK(row_of(&be, &b, 5000));
    backend_rewind(&be, mark);
    T_STATUS_OK(ref_cuda_empty(&be, &b, 2, 8, 0));
    T_STATUS_OK(op_embed(&be, &b, &a, (int32_t[]){2, 0}));
    T_OK(n_held > 5);
    backend_close(&be);
    T_OK(n_held == 0);
}

TEST(memory_that_is_not_there_is_named)
{
    Backend be;
    Tensor  a, b, huge;
    T_GPU(&be);
    CudaState *st = cuda_state(&be);
    T_STATUS_OK(row_of(&be, &a, 1000));
    st->limit = st->held + 3000 * sizeof(float);
    T_FAILS(backend_tensor(&be, &huge, 2, (int64_t[]){1000, 537000}), ERR_MEMORY,
            "out of memory on the GPU: a tensor [1000,537000] of F32 takes 2.00 GiB, ");
    T_OK(strstr(status_text(), "of --device-memory are held; a larger one, a smaller --context"));
    T_FAILS(row_of(&be, &b, 3001), ERR_MEMORY, "a tensor [3001] of F32 takes 0.0 MiB, 0.0 MiB of");
    ArenaMark mark = backend_mark(&be);
    T_STATUS_OK(row_of(&be, &b, 3000));
    backend_rewind(&be, mark);
    T_STATUS_OK(row_of(&be, &b, 2000));       // what waited makes room
    T_OK(st->held == 3000 * sizeof(float));
    st->limit = SIZE_MAX;
    fail_in = 1;
    T_FAILS(row_of(&be, &b, 5000), ERR_MEMORY, "are free; a smaller --context");
    arena_fail_at(1);
    T_FAILS(row_of(&be, &b, 5000), ERR_MEMORY, "out of memory");
    arena_fail_at(0);
    T_STATUS_OK(row_of(&be, &b, 5000));
    backend_close(&be);
    T_OK(n_held == 0);
}

/* --- the way there and back --- */

/* 18 MB through two halves of 8, which a small copy has begun. */
TEST(copies_larger_than_the_stage_arrive_whole)
{
    enum { N = 4500001, SMALL = 7 };
    Backend be;
    T_GPU(&be);
    Arena    arena = {0};
    Tensor   large, small;
    float   *in = arena_alloc(&arena, N, sizeof *in);
    float   *got = arena_alloc(&arena, N, sizeof *got);
    uint32_t state = 1;
    for (int64_t i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        in[i] = (float)(state >> 8);
    }
    T_STATUS_OK(row_of(&be, &large, N));
    T_STATUS_OK(row_of(&be, &small, SMALL));
    for (int i = 0; i < 2; i++) {
        in[i] = NAN;
        T_STATUS_OK(backend_upload(&be, &small, in));
        T_STATUS_OK(backend_upload(&be, &large, in));
        T_STATUS_OK(backend_download(&be, got, &large));
        T_OK(memcmp(got, in, tensor_bytes(&large)) == 0);
        T_STATUS_OK(backend_download(&be, got, &small));
        T_OK(memcmp(got, in, tensor_bytes(&small)) == 0);
    }
    arena_close(&arena);
    backend_close(&be);
}

/* What was sent stays as it was when its half is filled again. */
TEST(copies_after_one_another_keep_apart)
{
    enum { N = 1500000, COPIES = 7 };   // 6 MB each
    Backend be;
    T_GPU(&be);
    Arena  arena = {0};
    float *in = arena_alloc(&arena, N, sizeof *in);
    Tensor t[COPIES];
    for (int i = 0; i < COPIES; i++) {
        for (int64_t j = 0; j < N; j++)
            in[j] = (float)(i * 1000 + j % 997);
        T_STATUS_OK(row_of(&be, &t[i], N));
        T_STATUS_OK(backend_upload(&be, &t[i], in));
    }
    for (int i = 0; i < COPIES; i++) {
        int64_t wrong = 0;
        T_STATUS_OK(backend_download(&be, in, &t[i]));
        for (int64_t j = 0; j < N; j++)
            wrong += in[j] != (float)(i * 1000 + j % 997);
        T_OK(wrong == 0);
    }
    arena_close(&arena);
    backend_close(&be);
}
