/* cuda_memory.c - memory of the device, and the way there and back.
 *
 * Each piece is a cudaMalloc of its own, so that a checker sees where it ends. That call is
 * slow: what is given back waits for the next use of about its size, and passes over windows
 * of one length allocate nothing after the first. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_twin.h"
#include "kernels/cuda/cuda_weights.h"

enum { HALF = 8 << 20 };  // bytes of a half of the stage

struct CudaBlock {
    CudaBlock *below;
    void      *memory;
    size_t     bytes;
    size_t     used_at;  // of live blocks: bytes of the backend's arena up to it
};

/* --- blocks --- */

static CudaBlock *pop(CudaBlock **list)
{
    CudaBlock *b = *list;
    *list = b->below;
    return b;
}

static void push(CudaBlock **list, CudaBlock *b)
{
    b->below = *list;
    *list = b;
}

/* The smallest that fits and is not much too large, out of the list. */
static CudaBlock *take_spare(CudaState *st, size_t bytes)
{
    CudaBlock **best = NULL;
    for (CudaBlock **b = &st->spare; *b; b = &(*b)->below)
        if ((*b)->bytes >= bytes && (*b)->bytes - bytes <= bytes / 8 &&
            (!best || (*b)->bytes < (*best)->bytes))
            best = b;
    return best ? pop(best) : NULL;
}

static void free_list(CudaState *st, CudaBlock **list)
{
    while (*list) {
        CudaBlock *b = pop(list);
        cuda_give(st, b->memory, b->bytes);
        push(&st->unused, b);
    }
}

static Status describe(CudaState *st, CudaBlock **b)
{
    if (st->unused)
        *b = pop(&st->unused);
    else
        ARENA_NEW(*b, &st->arena, 1);
    return OK;
}

enum { SIZE_TEXT = 32 };

/* "1.25 GiB", "3.0 MiB" into text[SIZE_TEXT], which it returns. */
static const char *size_text(char *text, size_t bytes)
{
    const double MIB = 1 << 20, GIB = 1 << 30;
    bool         large = (double)bytes >= GIB;
    snprintf(text, SIZE_TEXT, large ? "%.2f GiB" : "%.1f MiB",
             (double)bytes / (large ? GIB : MIB));
    return text;
}

/* What limits, how much of it is taken, and what needs less. */
static Status no_memory(const CudaState *st, size_t bytes, const char *what)
{
    char   one[SIZE_TEXT], two[SIZE_TEXT], three[SIZE_TEXT];
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    size_text(one, bytes);
    if (st->limit < st->held + free)
        FAIL(ERR_MEMORY, "out of memory on the GPU: %s takes %s, %s of the %s of --device-memory "
             "are held; a larger one, a smaller --context or --dtype bf16 would do", what, one,
             size_text(two, st->held), size_text(three, st->limit));
    FAIL(ERR_MEMORY, "out of memory on the GPU: %s takes %s, %s of %s are free; a smaller "
         "--context, --dtype bf16 or --device cpu need less", what, one, size_text(two, free),
         size_text(three, total));
}

static cudaError_t allocate(CudaState *st, void **memory, size_t bytes)
{
    if (bytes > st->limit || st->held > st->limit - bytes)
        return cudaErrorMemoryAllocation;
    cudaError_t e = cudaMalloc(memory, bytes);
    if (e == cudaErrorMemoryAllocation)
        (void)cudaGetLastError();  // told here, not at the next launch
    if (e == cudaSuccess)
        st->held += bytes;
    return e;
}

void cuda_trim(CudaState *st)
{
    free_list(st, &st->spare);
}

cudaError_t cuda_take(CudaState *st, void **out, size_t bytes)
{
    cudaError_t e = allocate(st, out, bytes);
    if (e == cudaErrorMemoryAllocation && st->spare) {
        cuda_trim(st);
        e = allocate(st, out, bytes);
    }
    if (e != cudaSuccess)
        *out = NULL;
    return e;
}

void cuda_give(CudaState *st, void *memory, size_t bytes)
{
    (void)cudaFree(memory);  // a device that is lost has nothing to give back
    st->held -= bytes;
}

/* Weights make room for what works on them. */
static Status new_block(CudaState *st, CudaBlock **out, size_t bytes, const char *what)
{
    CudaBlock *b;
    TRY(describe(st, &b));
    cudaError_t e = cuda_take(st, &b->memory, bytes);
    while (e == cudaErrorMemoryAllocation && cuda_weights_yield(st))
        e = cuda_take(st, &b->memory, bytes);
    if (e != cudaSuccess) {
        push(&st->unused, b);
        return e == cudaErrorMemoryAllocation ? no_memory(st, bytes, what)
                                              : cuda_error(e, "cudaMalloc");
    }
    b->bytes = bytes;
    *out = b;
    return OK;
}

static Status take(CudaState *st, CudaBlock **out, size_t bytes, const char *what)
{
    bytes = bytes ? bytes : 1;
    *out = take_spare(st, bytes);
    return *out ? OK : new_block(st, out, bytes, what);
}

/* --- tensors and scratch --- */

static Status keep(Backend *be, void **out, size_t bytes, const char *what)
{
    CudaState *st = cuda_state(be);
    CudaBlock *b;
    char      *place;  // moves the arena on, so that a rewind knows what came after its mark
    ARENA_NEW(place, &be->arena, 1);
    TRY(take(st, &b, bytes, what));
    b->used_at = be->arena.used;
    push(&st->live, b);
    *out = b->memory;
    return OK;
}

Status cuda_keep(Backend *be, void **out, size_t bytes)
{
    return keep(be, out, bytes, "a matrix");
}

Status cuda_alloc(Backend *be, Tensor *t)
{
    char text[128], what[160];
    snprintf(what, sizeof what, "a tensor %s of F32", tensor_shape_text(t, text));
    return keep(be, &t->data, tensor_bytes(t), what);
}

void cuda_rewind(Backend *be, ArenaMark mark)
{
    CudaState *st = cuda_state(be);
    cuda_weights_rewind(st, mark);
    cuda_twin_rewind(st, mark);
    while (st->live && st->live->used_at > mark.used)
        push(&st->spare, pop(&st->live));
}

CudaBlock *cuda_scratch_mark(Backend *be)
{
    return cuda_state(be)->scratch;
}

void cuda_scratch_rewind(Backend *be, CudaBlock *mark)
{
    CudaState *st = cuda_state(be);
    while (st->scratch != mark)
        push(&st->spare, pop(&st->scratch));
}

static void end_scratch(CudaState *st)
{
    while (st->scratch)
        push(&st->spare, pop(&st->scratch));
}

Status cuda_scratch(Backend *be, void **out, size_t bytes)
{
    CudaState *st = cuda_state(be);
    CudaBlock *b;
    TRY(take(st, &b, bytes, "one operation"));
    push(&st->scratch, b);
    *out = b->memory;
    return OK;
}

Status cuda_begin(Backend *be, const Tensor *written)
{
    CudaState *st = cuda_state(be);
    CUDA_TRY(cudaSetDevice(st->device));
    end_scratch(st);
    if (written)
        cuda_twin_forget(st, written);
    return OK;
}

void cuda_memory_close(CudaState *st)
{
    end_scratch(st);
    free_list(st, &st->live);
    free_list(st, &st->spare);
    for (int i = 0; i < 2; i++) {
        if (st->stage.half[i])
            (void)cudaFreeHost(st->stage.half[i]);
        if (st->stage.arrived[i])
            (void)cudaEventDestroy(st->stage.arrived[i]);
    }
}

/* --- the way there and back --- */

Status cuda_stage_open(CudaState *st)
{
    for (int i = 0; i < 2; i++) {
        CUDA_TRY(cudaHostAlloc((void **)&st->stage.half[i], HALF, cudaHostAllocDefault));
        CUDA_TRY(cudaEventCreateWithFlags(&st->stage.arrived[i], cudaEventDisableTiming));
    }
    return OK;
}

/* Room in the stage: *bytes of it, or what the half has left; never none. */
static Status stage_room(CudaState *st, void **out, size_t *bytes)
{
    CudaStage *s = &st->stage;
    if (s->used == HALF) {
        CUDA_TRY(cudaEventRecord(s->arrived[s->at], st->stream));
        s->at = !s->at;
        s->used = 0;
        CUDA_TRY(cudaEventSynchronize(s->arrived[s->at]));
    }
    if (*bytes > HALF - s->used)
        *bytes = HALF - s->used;
    *out = s->half[s->at] + s->used;
    s->used += *bytes;
    return OK;
}

Status cuda_send(Backend *be, void *device, const void *host, size_t bytes)
{
    CudaState *st = cuda_state(be);
    for (size_t i = 0, n; i < bytes; i += n) {
        void *room = NULL;
        n = bytes - i;
        TRY(stage_room(st, &room, &n));
        memcpy(room, (const char *)host + i, n);
        CUDA_TRY(cudaMemcpyAsync((char *)device + i, room, n, cudaMemcpyHostToDevice,
                                 st->stream));
    }
    return OK;
}

Status cuda_sent(Backend *be, void **device, const void *host, size_t bytes)
{
    TRY(cuda_scratch(be, device, bytes));
    return cuda_send(be, *device, host, bytes);
}

Status cuda_fetch(Backend *be, void *host, const void *device, size_t bytes)
{
    CudaState *st = cuda_state(be);
    for (size_t i = 0, n; i < bytes; i += n) {
        void *room = NULL;
        n = bytes - i;
        TRY(stage_room(st, &room, &n));
        CUDA_TRY(cudaMemcpyAsync(room, (const char *)device + i, n, cudaMemcpyDeviceToHost,
                                 st->stream));
        CUDA_TRY(cudaStreamSynchronize(st->stream));
        memcpy((char *)host + i, room, n);
    }
    return OK;
}

Status cuda_zero(Backend *be, void *device, size_t bytes)
{
    if (bytes)
        CUDA_TRY(cudaMemsetAsync(device, 0, bytes, cuda_state(be)->stream));
    return OK;
}

Status cuda_upload(Backend *be, Tensor *dst, const void *host)
{
    TRY(cuda_begin(be, dst));
    return cuda_send(be, dst->data, host, tensor_bytes(dst));
}

Status cuda_download(Backend *be, void *host, const Tensor *src)
{
    TRY(cuda_begin(be, NULL));
    return cuda_fetch(be, host, src->data, tensor_bytes(src));
}
