/* cuda_weights.c - weights on the device, and those that come from the host.
 *
 * A slot is filled on the stream `ahead` and read on the stream of kernels, with an event each
 * way: `arrived` before kernels read it; `done`, set when they turn to the other slot, before
 * it is filled again.
 * test    tests/cuda/test_cuda_weights.c */
#include "kernels/cuda/cuda_weights.h"

#include <string.h>

#include "kernels/size.h"

typedef struct {
    void        *memory;
    CudaWeights *holds;          // NULL: nothing
    cudaEvent_t  arrived, done;
} Slot;

struct CudaStream {
    CudaWeights *placed;         // newest first
    CudaWeights *in_use;         // given out last: stays where it is
    CudaWeights *last;           // of those from the host, the one given out last
    size_t       largest;        // of those on the host
    Slot         slot[2];
    size_t       slot_bytes;     // of each; 0: none yet
    int          current;        // slot that kernels read
};

/* --- memory of the host --- */

static Status host_take(CudaWeights *w)
{
    if (cudaHostAlloc(&w->host, w->bytes, cudaHostAllocDefault) == cudaSuccess)
        return OK;
    (void)cudaGetLastError();  // there is another way, if a slower one
    w->host = arena_raw(&w->plain, (int64_t)w->bytes, 1);
    if (!w->host)
        FAIL(ERR_MEMORY, "out of memory: %.2f GiB of weights have room neither on the GPU nor "
             "beside it", (double)w->bytes / (double)(1 << 30));
    return OK;
}

static void host_give(CudaWeights *w)
{
    if (w->plain.top)
        arena_close(&w->plain);
    else
        (void)cudaFreeHost(w->host);
    w->host = NULL;
}

/* --- room on the device --- */

static size_t more(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Whether what is held, `less` bytes of it gone, `bytes` more and two slots of `largest`
 * leave enough to activations. */
static bool fits(const CudaState *st, size_t less, size_t bytes, size_t largest)
{
    enum { GIB = 1 << 30 };
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    size_t all = st->held + free < st->limit ? st->held + free : st->limit;
    size_t rest = all / 2 < GIB ? all / 2 : GIB;
    size_t slots = 2 * (more(largest, st->weights->slot_bytes) - st->weights->slot_bytes);
    size_t most = all - more(rest, all / 8);
    return st->held - less <= most && bytes <= most - (st->held - less) &&
           slots <= most - (st->held - less) - bytes;
}

/* The newest on the device that may move and is smaller than `below`, NULL: none. */
static CudaWeights *candidate(CudaWeights *w, const CudaStream *s, size_t below)
{
    while (w && (!w->device || w == s->in_use || w->bytes >= below))
        w = w->below;
    return w;
}

static Status move_out(CudaState *st, CudaWeights *w)
{
    TRY(host_take(w));
    cudaError_t e = cudaMemcpyAsync(w->host, w->device, w->bytes, cudaMemcpyDeviceToHost,
                                    st->stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(st->stream);
    if (e != cudaSuccess) {
        host_give(w);
        return cuda_error(e, "cudaMemcpyAsync");
    }
    cuda_give(st, w->device, w->bytes);
    w->device = NULL;
    st->weights->largest = more(st->weights->largest, w->bytes);
    return OK;
}

bool cuda_weights_yield(CudaState *st)
{
    CudaStream  *s = st->weights;
    CudaWeights *w = s ? candidate(s->placed, s, SIZE_MAX) : NULL;
    return w && move_out(st, w) == OK;
}

/* Moves smaller ones out if that helps; false where w has to stay on the host. */
static bool room_for(CudaState *st, const CudaWeights *w)
{
    CudaStream  *s = st->weights;
    CudaWeights *other = s->placed;
    size_t       small = 0, largest = s->largest;
    if (!fits(st, 0, w->bytes, largest))
        cuda_trim(st);
    while ((other = candidate(other, s, w->bytes)) && !fits(st, small, w->bytes, largest)) {
        small += other->bytes;
        largest = more(largest, other->bytes);
        other = other->below;
    }
    if (!fits(st, small, w->bytes, largest))
        return false;
    for (size_t moved = 0; moved < small; moved += other->bytes) {
        other = candidate(s->placed, s, w->bytes);
        if (move_out(st, other) != OK)
            return false;
    }
    return true;
}

static Status place_on_host(CudaState *st, CudaWeights *w)
{
    TRY(host_take(w));
    st->weights->largest = more(st->weights->largest, w->bytes);
    while (!fits(st, 0, 0, st->weights->largest) && cuda_weights_yield(st))
        ;
    return OK;
}

/* --- placing --- */

static Status start(CudaState *st)
{
    CudaStream *s;
    if (st->weights)
        return OK;
    ARENA_NEW(s, &st->arena, 1);
    for (int i = 0; i < 2; i++) {
        CUDA_TRY(cudaEventCreateWithFlags(&s->slot[i].arrived, cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&s->slot[i].done, cudaEventDisableTiming));
    }
    st->weights = s;
    return OK;
}

Status cuda_weights_new(Backend *be, CudaWeights **out, size_t bytes)
{
    CudaState   *st = cuda_state(be);
    CudaWeights *w;
    TRY(start(st));
    ARENA_NEW(w, &be->arena, 1);
    w->bytes = bytes;
    w->used_at = be->arena.used;
    if (!room_for(st, w) || cuda_take(st, &w->device, bytes) != cudaSuccess)
        TRY(place_on_host(st, w));
    w->of = st->weights;
    w->below = st->weights->placed;
    st->weights->placed = st->weights->in_use = w;
    *out = w;
    return OK;
}

Status cuda_weights_write(Backend *be, CudaWeights *w, size_t at, const void *host,
                          size_t bytes)
{
    CHECK(at <= w->bytes && bytes <= w->bytes - at);
    if (w->device)
        return cuda_send(be, (char *)w->device + at, host, bytes);
    memcpy((char *)w->host + at, host, bytes);
    return OK;
}

Status cuda_weights_place(Backend *be, CudaWeights **out, const void *host, size_t bytes)
{
    TRY(cuda_weights_new(be, out, bytes));
    return cuda_weights_write(be, *out, 0, host, bytes);
}

/* --- slots --- */

static Status wait(CudaState *st)
{
    CUDA_TRY(cudaStreamSynchronize(st->ahead));
    CUDA_TRY(cudaStreamSynchronize(st->stream));
    return OK;
}

static void free_slots(CudaState *st)
{
    CudaStream *s = st->weights;
    for (int i = 0; i < 2; i++) {
        if (s->slot[i].memory)
            cuda_give(st, s->slot[i].memory, s->slot_bytes);
        s->slot[i].memory = s->slot[i].holds = NULL;
    }
    s->slot_bytes = 0;
}

static cudaError_t take_slots(CudaState *st)
{
    CudaStream *s = st->weights;
    s->slot_bytes = s->largest;
    for (int i = 0; i < 2; i++) {
        cudaError_t e = cuda_take(st, &s->slot[i].memory, s->slot_bytes);
        if (e != cudaSuccess) {
            s->slot[i].memory = NULL;
            free_slots(st);
            return e;
        }
    }
    return cudaSuccess;
}

/* Slots for the largest there is; what one moves out for them may be larger still. */
static Status grow_slots(CudaState *st)
{
    if (st->weights->slot_bytes >= st->weights->largest)
        return OK;
    TRY(wait(st));
    free_slots(st);
    cudaError_t e = take_slots(st);
    while (e == cudaErrorMemoryAllocation && cuda_weights_yield(st))
        e = take_slots(st);
    if (e == cudaErrorMemoryAllocation)
        FAIL(ERR_MEMORY, "out of memory on the GPU: weights that do not fit come through two "
             "slots of %.2f GiB, which do not either; use --device cpu",
             (double)st->weights->largest / (double)(1 << 30));
    return e == cudaSuccess ? OK : cuda_error(e, "cudaMalloc");
}

static Status fill(CudaState *st, Slot *slot, CudaWeights *w)
{
    slot->holds = NULL;
    CUDA_TRY(cudaStreamWaitEvent(st->ahead, slot->done, 0));
    CUDA_TRY(cudaMemcpyAsync(slot->memory, w->host, w->bytes, cudaMemcpyHostToDevice,
                             st->ahead));
    CUDA_TRY(cudaEventRecord(slot->arrived, st->ahead));
    slot->holds = w;
    return OK;
}

/* Turns kernels to the slot that holds w, and fills it if none does. */
static Status turn_to(CudaState *st, CudaWeights *w)
{
    CudaStream *s = st->weights;
    if (s->slot[s->current].holds == w)
        return OK;
    CUDA_TRY(cudaEventRecord(s->slot[s->current].done, st->stream));
    s->current = !s->current;
    if (s->slot[s->current].holds != w)
        TRY(fill(st, &s->slot[s->current], w));
    CUDA_TRY(cudaStreamWaitEvent(st->stream, s->slot[s->current].arrived, 0));
    return OK;
}

/* Used again and again, as the last layer is, a matrix keeps who came after it. */
static void follow(CudaStream *s, CudaWeights *w)
{
    if (s->last && s->last != w)
        s->last->next = w;
    s->last = w;
}

/* Of another backend, as the reference's last layer is: may be gone before this one looks at
 * it again, so that nothing remembers it. */
static Status lend(CudaState *st, CudaWeights *w, const void **device)
{
    CudaStream *s = st->weights;
    s->largest = more(s->largest, w->bytes);
    TRY(grow_slots(st));
    TRY(turn_to(st, w));
    *device = s->slot[s->current].memory;
    s->slot[s->current].holds = NULL;
    return OK;
}

Status cuda_weights_here(Backend *be, CudaWeights *w, const void **device)
{
    CudaState  *st = cuda_state(be);
    TRY(start(st));
    CudaStream *s = st->weights;
    s->in_use = w;
    if (w->device) {
        *device = w->device;
        return OK;
    }
    if (w->of != s)
        return lend(st, w, device);
    TRY(grow_slots(st));
    follow(s, w);
    TRY(turn_to(st, w));
    Slot *other = &s->slot[!s->current];
    if (w->next && !w->next->device && other->holds != w->next)
        TRY(fill(st, other, w->next));
    *device = s->slot[s->current].memory;
    return OK;
}

/* --- the end --- */

static void forget(CudaState *st, CudaWeights *w)
{
    CudaStream *s = st->weights;
    for (CudaWeights *other = s->placed; other; other = other->below)
        if (other->next == w)
            other->next = NULL;
    for (int i = 0; i < 2; i++)
        if (s->slot[i].holds == w)
            s->slot[i].holds = NULL;
    s->in_use = s->in_use == w ? NULL : s->in_use;
    s->last = s->last == w ? NULL : s->last;
    if (w->device)
        cuda_give(st, w->device, w->bytes);
    else
        host_give(w);
}

void cuda_weights_rewind(CudaState *st, ArenaMark mark)
{
    CudaStream *s = st->weights;
    if (!s || !s->placed || s->placed->used_at <= mark.used)
        return;
    (void)wait(st);  // a device that is lost has nothing that could wait
    while (s->placed && s->placed->used_at > mark.used) {
        CudaWeights *w = s->placed;
        s->placed = w->below;
        forget(st, w);
    }
    s->largest = 0;
    for (CudaWeights *w = s->placed; w; w = w->below)
        if (!w->device)
            s->largest = more(s->largest, w->bytes);
    if (s->largest == 0)
        free_slots(st);
}

void cuda_weights_close(Backend *be)
{
    CudaState  *st = cuda_state(be);
    CudaStream *s = st->weights;
    if (!s)
        return;
    cuda_weights_rewind(st, (ArenaMark){0});
    free_slots(st);
    for (int i = 0; i < 2; i++) {
        (void)cudaEventDestroy(s->slot[i].arrived);
        (void)cudaEventDestroy(s->slot[i].done);
    }
    st->weights = NULL;
}
