/* test_cuda_weights.c - weights that lie on the device and weights that come from the host:
 * the same numbers either way, copied behind the work before, and both memories given back. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda_weights.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

/* --- the runtime's calls, on their way there --- */

static bool no_pinned;         // there is no pinned memory
static int  n_pinned;          // pieces of it
static int  n_to_device;       // copies on a stream, of weights' size

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    cudaError_t (*real)(void **, size_t, unsigned);
    void *found = dlsym(RTLD_NEXT, "cudaHostAlloc");
    memcpy(&real, &found, sizeof real);
    if (no_pinned)
        return cudaErrorMemoryAllocation;
    n_pinned++;
    return real(p, bytes, flags);
}

cudaError_t cudaFreeHost(void *p)
{
    cudaError_t (*real)(void *);
    void *found = dlsym(RTLD_NEXT, "cudaFreeHost");
    memcpy(&real, &found, sizeof real);
    n_pinned--;
    return real(p);
}

enum { N = 96, LAYERS = 6, BYTES = N * N * 4, T = 3 };

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t (*real)(void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
    void *found = dlsym(RTLD_NEXT, "cudaMemcpyAsync");
    memcpy(&real, &found, sizeof real);
    n_to_device += kind == cudaMemcpyHostToDevice && bytes == BYTES;
    return real(to, from, bytes, kind, stream);
}

/* --- a chain of layers: the output of each is the input of the next --- */

typedef struct {
    Arena   arena;
    Backend be;
    float  *w[LAYERS];
    Linear  layer[LAYERS];
    Tensor  x, y[LAYERS];
    float  *got;     // [LAYERS,T,N]
} Case;

static Status case_open(Case *c)
{
    *c = (Case){0};
    TRY(backend_open(&c->be, "cuda", 1));
    for (int i = 0; i < LAYERS; i++)
        c->w[i] = ref_normal(&c->arena, N, N, 1 + (uint64_t)i).data;
    ARENA_NEW(c->got, &c->arena, LAYERS * T * N);
    TRY(ref_cuda_tensor(&c->be, &c->x, ref_normal(&c->arena, T, N, 99).data, T, N, 0));
    for (int i = 0; i < LAYERS; i++)
        TRY(ref_cuda_empty(&c->be, &c->y[i], T, N, 0));
    return OK;
}

static Status pack(Case *c)
{
    for (int i = 0; i < LAYERS; i++)
        TRY(op_linear_pack(&c->be, &c->layer[i], c->w[i], NULL, N, N, DTYPE_F32));
    return OK;
}

static Status pass(Case *c)
{
    for (int i = 0; i < LAYERS; i++)
        TRY(op_linear(&c->be, &c->y[i], i ? &c->y[i - 1] : &c->x, &c->layer[i]));
    return OK;
}

static Status read(Case *c)
{
    bool whole;
    for (int i = 0; i < LAYERS; i++) {
        TRY(ref_cuda_read(&c->be, c->got + i * T * N, &c->y[i], &whole));
        if (!whole)
            FAIL(ERR_RANGE, "a guard of layer %d is gone", i);
    }
    return OK;
}

static int on_device(const Case *c)
{
    int n = 0;
    for (int i = 0; i < LAYERS; i++)
        n += ((CudaWeights *)c->layer[i].packed)->device != NULL;
    return n;
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

/* Room for `bytes` more than is held, of which half is for activations. */
static void limit(Case *c, size_t bytes)
{
    CudaState *st = cuda_state(&c->be);
    cuda_trim(st);
    st->limit = 2 * (st->held + bytes);
}

/* With room for no more; all are packed. */
static Status case_open_within(Case *c, size_t bytes)
{
    TRY(case_open(c));
    limit(c, bytes);
    return pack(c);
}

static float want[LAYERS * T * N];

/* What all layers give where all of them stay, the measure of the others, into want. */
static Status case_open_staying(Case *c)
{
    TRY(case_open(c));
    TRY(pack(c));
    TRY(pass(c));
    TRY(read(c));
    memcpy(want, c->got, sizeof want);
    return OK;
}

static Status measure(void)
{
    Case   c;
    Status s = case_open_staying(&c);
    case_close(&c);
    return s;
}

static Status pass_as_wanted(Case *c)
{
    TRY(pass(c));
    TRY(read(c));
    if (memcmp(c->got, want, sizeof want) != 0)
        FAIL(ERR_RANGE, "a pass gives other numbers than where all layers stay");
    return OK;
}

TEST(weights_stay_where_there_is_room)
{
    Case c;
    T_GPU_THERE();
    T_STATUS_OK(case_open_staying(&c));
    T_OK(on_device(&c) == LAYERS);
    T_OK(isfinite(want[LAYERS * T * N - 1]));
    case_close(&c);
    T_OK(n_pinned == 0);
}

/* However many of them stay, several passes give the bits that they give when all do. */
static void check_limit(size_t bytes, int stay, bool pinned)
{
    Case c;
    T_GPU_THERE();
    T_STATUS_OK(measure());
    T_STATUS_OK(case_open(&c));
    limit(&c, bytes);
    no_pinned = !pinned;
    T_STATUS_OK(pack(&c));
    no_pinned = false;
    T_OK(on_device(&c) == stay);
    for (int i = 0; i < 3; i++)
        T_STATUS_OK(pass_as_wanted(&c));
    T_OK(cuda_state(&c.be)->held <= cuda_state(&c.be)->limit);
    case_close(&c);
    T_OK(n_pinned == 0);
}

TEST(weights_that_do_not_fit_come_when_they_are_used)
{
    check_limit(BYTES, 0, true);
    check_limit(2 * BYTES, 0, true);         // two slots
    check_limit(4 * BYTES + 99, 2, true);
    check_limit(5 * BYTES, 3, true);
}

TEST(weights_come_from_memory_that_is_not_pinned)
{
    check_limit(3 * BYTES, 1, false);
}

/* Passes without a wait between them: a slot that is filled too early, or read too early,
 * shows. */
TEST(many_passes_run_behind_each_other)
{
    Case c;
    T_GPU_THERE();
    T_STATUS_OK(measure());
    T_STATUS_OK(case_open_within(&c, BYTES));
    for (int i = 0; i < 4; i++)
        T_STATUS_OK(pass(&c));
    /* What copies do not wait for has now not happened. */
    T_OK(cudaStreamSynchronize(cuda_state(&c.be)->ahead) == cudaSuccess);
    T_STATUS_OK(read(&c));
    T_OK(memcmp(c.got, want, sizeof want) == 0);
    case_close(&c);
}

/* Each comes once a pass, from the second pass on one layer ahead: when it ends, the first of
 * the next is under way. Two that take turns, as two heads do, are both there. */
TEST(weights_come_once_a_pass)
{
    Case c;
    T_GPU_THERE();
    T_STATUS_OK(case_open_within(&c, BYTES));
    n_to_device = 0;
    T_STATUS_OK(pass(&c));
    T_OK(n_to_device == LAYERS);
    for (int i = 2; i < 5; i++) {
        T_STATUS_OK(pass(&c));
        T_OK(n_to_device == i * LAYERS + 1);
    }
    for (int i = 0; i < 10; i++) {
        T_STATUS_OK(op_linear(&c.be, &c.y[0], &c.x, &c.layer[i % 2]));
        if (i == 3)
            n_to_device = 0;
    }
    T_OK(n_to_device == 0);
    case_close(&c);
}

/* Any order of use, with a guess that is wrong most of the time. */
TEST(any_order_gives_the_same)
{
    Case     c, all;
    uint64_t seed = 3;
    float    one[T * N], other[T * N];
    T_GPU_THERE();
    T_STATUS_OK(case_open_staying(&all));
    T_STATUS_OK(case_open_within(&c, 3 * BYTES));
    T_OK(on_device(&c) == 1);
    for (int round = 0; round < 20; round++) {
        int i = 1 + (int)((check_uniform(&seed) + 1) / 2 * (LAYERS - 1));
        T_STATUS_OK(op_linear(&c.be, &c.y[0], &c.x, &c.layer[0]));
        T_STATUS_OK(op_linear(&all.be, &all.y[0], &all.x, &all.layer[0]));
        T_STATUS_OK(op_linear(&c.be, &c.y[1], &c.y[0], &c.layer[i]));
        T_STATUS_OK(op_linear(&all.be, &all.y[1], &all.y[0], &all.layer[i]));
        if (round % 7)
            continue;
        bool whole;
        T_STATUS_OK(ref_cuda_read(&c.be, one, &c.y[1], &whole));
        T_STATUS_OK(ref_cuda_read(&all.be, other, &all.y[1], &whole));
        T_OK(memcmp(one, other, sizeof one) == 0);
    }
    case_close(&c);
    case_close(&all);
}

/* A large one stays and small ones go, whose slots are small; a small one that comes later
 * moves nobody. */
TEST(large_matrices_stay_before_small_ones)
{
    Case   c;
    Linear large, small;
    Tensor y;
    bool   whole;
    T_GPU_THERE();
    T_STATUS_OK(measure());
    T_STATUS_OK(case_open(&c));
    float *w = ref_normal(&c.arena, 5 * N, N, 50).data;
    T_STATUS_OK(ref_cuda_empty(&c.be, &y, T, 5 * N, 0));
    limit(&c, 8 * BYTES);
    T_STATUS_OK(pack(&c));
    T_OK(on_device(&c) == LAYERS);
    T_STATUS_OK(op_linear_pack(&c.be, &large, w, NULL, 5 * N, N, DTYPE_F32));
    T_OK(((CudaWeights *)large.packed)->device && on_device(&c) == 1);
    T_STATUS_OK(op_linear_pack(&c.be, &small, w, NULL, N, N, DTYPE_F32));
    T_OK(!((CudaWeights *)small.packed)->device && on_device(&c) == 1);
    T_STATUS_OK(pass(&c));
    T_STATUS_OK(op_linear(&c.be, &y, &c.x, &large));
    T_STATUS_OK(read(&c));
    T_OK(memcmp(c.got, want, sizeof want) == 0);
    float *got = ref_guarded(&c.arena, T * 5 * N);
    T_STATUS_OK(ref_cuda_read(&c.be, got, &y, &whole));
    T_OK(whole && isfinite(got[0]));
    T_STATUS_OK(op_linear(&c.be, &c.y[0], &c.x, &small));
    T_STATUS_OK(read(&c));
    for (int t = 0; t < T; t++)
        T_OK(memcmp(c.got + t * N, got + t * 5 * N, N * sizeof *got) == 0);
    case_close(&c);
    T_OK(n_pinned == 0);
}

TEST(weights_make_room_for_activations)
{
    Case   c;
    Tensor big;
    T_GPU_THERE();
    T_STATUS_OK(case_open_staying(&c));
    CudaState *st = cuda_state(&c.be);
    cuda_trim(st);
    st->limit = st->held + BYTES;
    T_STATUS_OK(backend_tensor(&c.be, &big, 1, (int64_t[]){3 * N * N}));
    T_OK(on_device(&c) == LAYERS - 2);
    T_OK(((CudaWeights *)c.layer[LAYERS - 1].packed)->device);  // in use, for all we know
    T_FAILS(backend_tensor(&c.be, &big, 1, (int64_t[]){9 * N * N}), ERR_MEMORY,
            "out of memory on the GPU: a tensor [82944] of F32");
    T_STATUS_OK(backend_tensor(&c.be, &big, 1, (int64_t[]){1}));
    st->limit += 2 * BYTES;
    T_STATUS_OK(pass_as_wanted(&c));
    case_close(&c);
    T_OK(n_pinned == 0);
}

/* Both memories, and what is left still runs. */
TEST(rewind_gives_weights_back)
{
    for (int tight = 0; tight < 2; tight++) {
        Case   c;
        Linear more[3];
        T_GPU_THERE();
        T_STATUS_OK(case_open(&c));
        if (tight)
            limit(&c, 3 * BYTES + 9999);
        T_STATUS_OK(pack(&c));
        T_STATUS_OK(pass(&c));
        T_STATUS_OK(read(&c));
        cuda_trim(cuda_state(&c.be));
        size_t held = cuda_state(&c.be)->held;
        int    pinned = n_pinned;
        ArenaMark mark = backend_mark(&c.be);
        for (int i = 0; i < 3; i++)
            T_STATUS_OK(op_linear_pack(&c.be, &more[i], c.w[i], c.w[0], N, N, DTYPE_F32));
        T_OK(tight ? n_pinned > pinned : cuda_state(&c.be)->held > held);
        for (int i = 0; i < 3; i++)
            T_STATUS_OK(op_linear(&c.be, &c.y[i], &c.x, &more[i]));
        backend_rewind(&c.be, mark);
        cuda_trim(cuda_state(&c.be));
        T_OK(n_pinned == pinned && cuda_state(&c.be)->held == held);
        memcpy(want, c.got, sizeof want);
        T_STATUS_OK(pass_as_wanted(&c));
        case_close(&c);
        T_OK(n_pinned == 0);
    }
}

/* The first two layers of one input, where all stay, into want. */
static Status case_open_two(Case *c)
{
    TRY(case_open_staying(c));
    for (int i = 0; i < 2; i++)
        TRY(op_linear(&c->be, &c->y[i], &c->x, &c->layer[i]));
    TRY(read(c));
    memcpy(want, c->got, sizeof want);
    return OK;
}

/* A matrix that takes the place of one given back, in both memories, is another one. */
TEST(a_slot_forgets_what_was_given_back)
{
    Case   c;
    Linear own[2];
    T_GPU_THERE();
    T_STATUS_OK(case_open_two(&c));
    case_close(&c);
    T_STATUS_OK(case_open_within(&c, BYTES));
    T_OK(on_device(&c) == 0);
    ArenaMark mark = backend_mark(&c.be);
    for (int i = 0; i < 2; i++) {
        T_STATUS_OK(op_linear_pack(&c.be, &own[i], c.w[i], NULL, N, N, DTYPE_F32));
        T_OK(!((CudaWeights *)own[i].packed)->device);
        T_STATUS_OK(op_linear(&c.be, &c.y[i], &c.x, &own[i]));
        backend_rewind(&c.be, mark);
    }
    T_OK(own[0].packed == own[1].packed);
    for (int i = 2; i < LAYERS; i++)
        T_STATUS_OK(op_linear(&c.be, &c.y[i], &c.x, &c.layer[i]));
    T_STATUS_OK(read(&c));
    T_OK(memcmp(c.got, want, 2 * T * N * sizeof *want) == 0);
    case_close(&c);
}

/* The same of a matrix that another backend lends, which does not say when it goes. */
TEST(a_slot_forgets_what_was_lent)
{
    Case   c, lender;
    Linear lent[2];
    T_GPU_THERE();
    T_STATUS_OK(case_open_two(&c));
    T_STATUS_OK(case_open_within(&lender, BYTES));
    ArenaMark mark = backend_mark(&lender.be);
    for (int i = 0; i < 2; i++) {
        T_STATUS_OK(op_linear_pack(&lender.be, &lent[i], c.w[i], NULL, N, N, DTYPE_F32));
        T_OK(!((CudaWeights *)lent[i].packed)->device);
        T_STATUS_OK(op_linear(&c.be, &c.y[i], &c.x, &lent[i]));
        T_STATUS_OK(read(&c));
        backend_rewind(&lender.be, mark);
    }
    T_OK(lent[0].packed == lent[1].packed);
    T_OK(memcmp(c.got, want, 2 * T * N * sizeof *want) == 0);
    case_close(&c);
    case_close(&lender);
    T_OK(n_pinned == 0);
}

TEST(weights_take_the_place_of_memory_that_waits)
{
    Case   c;
    Tensor big;
    T_GPU_THERE();
    T_STATUS_OK(case_open(&c));
    CudaState *st = cuda_state(&c.be);
    cuda_trim(st);
    size_t    held = st->held;
    ArenaMark mark = backend_mark(&c.be);
    T_STATUS_OK(backend_tensor(&c.be, &big, 1, (int64_t[]){4 * N * N}));
    backend_rewind(&c.be, mark);
    T_OK(st->held == held + 4 * BYTES);
    st->limit = 2 * (held + BYTES);
    T_STATUS_OK(op_linear_pack(&c.be, &c.layer[0], c.w[0], NULL, N, N, DTYPE_F32));
    T_OK(((CudaWeights *)c.layer[0].packed)->device && st->held == held + BYTES);
    case_close(&c);
}

/* Scratch takes the memory of all others, not that of the matrix it is there for. */
TEST(weights_in_use_stay_where_they_are)
{
    Case        c;
    const void *place;
    void       *scratch;
    T_GPU_THERE();
    T_STATUS_OK(case_open(&c));
    T_STATUS_OK(pack(&c));
    cuda_trim(cuda_state(&c.be));
    cuda_state(&c.be)->limit = cuda_state(&c.be)->held;
    CudaWeights *w = c.layer[0].packed;
    T_STATUS_OK(cuda_begin(&c.be, NULL));
    T_STATUS_OK(cuda_weights_here(&c.be, w, &place));
    T_STATUS_OK(cuda_scratch(&c.be, &scratch, (LAYERS - 1) * BYTES));
    T_OK(w->device == place && on_device(&c) == 1);
    case_close(&c);
    T_OK(n_pinned == 0);
}

/* As the last layer is, for several pieces of rows: it comes once, and the first one of the
 * next pass is still known to follow: it is under way at the end. */
TEST(weights_used_again_and_again_come_once)
{
    Case c;
    T_GPU_THERE();
    T_STATUS_OK(case_open_within(&c, BYTES));
    for (int i = 0; i < 4; i++) {
        n_to_device = i < 2 ? 0 : n_to_device;
        T_STATUS_OK(pass(&c));
        for (int j = 0; j < 3; j++)
            T_STATUS_OK(op_linear(&c.be, &c.y[LAYERS - 1], &c.y[LAYERS - 2],
                                  &c.layer[LAYERS - 1]));
    }
    T_OK(n_to_device == 3 * LAYERS + 1);
    case_close(&c);
}

/* Codes, scales and offsets are parts of one piece of memory, there too. */
TEST(codes_come_from_the_host)
{
    enum { GROUPS = N / 16 };
    Case   c;
    Linear stays, comes;
    int8_t codes[N * N];
    T_GPU_THERE();
    T_STATUS_OK(case_open(&c));
    for (int i = 0; i < N * N; i++)
        codes[i] = (int8_t)(i * 7 % 16 - 8);
    Codes all = {N, N, 4, 16, codes, c.w[0], c.w[1], NULL};
    T_STATUS_OK(op_linear_codes(&c.be, &stays, &all, NULL, DTYPE_F32));
    limit(&c, 1000);
    T_STATUS_OK(op_linear_codes(&c.be, &comes, &all, NULL, DTYPE_F32));
    cuda_state(&c.be)->limit = SIZE_MAX;
    T_OK(((CudaWeights *)stays.packed)->device && !((CudaWeights *)comes.packed)->device);
    T_STATUS_OK(op_linear(&c.be, &c.y[0], &c.x, &stays));
    T_STATUS_OK(op_linear(&c.be, &c.y[1], &c.x, &comes));
    for (int i = 2; i < LAYERS; i++)
        T_STATUS_OK(op_copy(&c.be, &c.y[i], &c.x));
    T_STATUS_OK(read(&c));
    T_OK(isfinite(c.got[0]) && memcmp(c.got, c.got + T * N, T * N * sizeof *c.got) == 0);
    case_close(&c);
}

/* 8 MB of rounded weights and two rows more: what is on its way goes in pieces. One number a
 * row of W, another in each. */
TEST(weights_on_their_way_in_pieces_keep_their_rows)
{
    enum { ROWS = 2050, WIDTH = 2048 };
    Arena   arena = {0};
    Backend be;
    Linear  linear;
    Tensor  x, y;
    bool    whole;
    T_GPU(&be);
    float *w = arena_alloc(&arena, ROWS * WIDTH, sizeof *w), *ones = ref_guarded(&arena, WIDTH);
    float *got = ref_guarded(&arena, ROWS);
    for (int n = 0; n < ROWS; n++)
        w[n * WIDTH + n % WIDTH] = (float)(1 + n % 127);
    for (int k = 0; k < WIDTH; k++)
        ones[k] = 1;
    T_STATUS_OK(op_linear_pack(&be, &linear, w, NULL, ROWS, WIDTH, DTYPE_BF16));
    T_STATUS_OK(ref_cuda_exact(&be, &x, ones, 1, WIDTH));
    T_STATUS_OK(ref_cuda_empty(&be, &y, 1, ROWS, 0));
    T_STATUS_OK(op_linear(&be, &y, &x, &linear));
    T_STATUS_OK(ref_cuda_read(&be, got, &y, &whole));
    for (int n = 0; n < ROWS; n++)
        T_OK(got[n] == (float)(1 + n % 127));
    backend_close(&be);
    arena_close(&arena);
}

TEST(no_room_at_all_is_said)
{
    Case c;
    T_GPU_THERE();
    T_STATUS_OK(case_open(&c));
    cuda_trim(cuda_state(&c.be));
    cuda_state(&c.be)->limit = cuda_state(&c.be)->held + 100;
    no_pinned = true;
    arena_fail_at(3);
    Status s = op_linear_pack(&c.be, &c.layer[0], c.w[0], NULL, N, N, DTYPE_F32);
    arena_fail_at(0);
    no_pinned = false;
    T_OK(s == ERR_MEMORY && strstr(status_text(), "have room neither on the GPU nor beside"));
    T_STATUS_OK(pack(&c));
    T_FAILS(op_linear(&c.be, &c.y[0], &c.x, &c.layer[0]), ERR_MEMORY,
            "two slots of 0.00 GiB, which do not either");
    cuda_state(&c.be)->limit = SIZE_MAX;
    T_STATUS_OK(pass(&c));
    case_close(&c);
    T_OK(n_pinned == 0);
}
