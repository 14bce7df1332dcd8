/* cpu_scan.c - Mamba-1's selective scan: threads take blocks of channels of a sequence.
 * h_t = exp(delta_t A) h_(t-1) + delta_t B_t u_t,  y_t = C_t h_t + D u_t: cpu_scan_isa.c
 * shapes  u, dt, y [T,E] f32, bc [T,2N], A [E,N], state [2N,E]; any T, E, N >= 1
 * cost    12TE bytes, TEN exp: bound by exp for N = 16
 * sums    a channel is computed alone and in order of t: threads, the batch and cuts into
 *         pieces (state is h with all its bits) change nothing
 * NaN     cpu_scan_isa.c
 * test    tests/kernels/test_scan.c */
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_carve.h"
#include "kernels/cpu/cpu_ssm.h"
#include "kernels/size.h"

typedef struct {
    int64_t      E, N;
    const float *u, *dt, *bc, *a, *d, *dt_bias;
    float       *y, *state;   // state NULL: none
    const Batch *batch;
} ScanCall;

/* Memory of one thread. */
static void place(ScanBlock *s, int64_t N, Carve *m)
{
    CARVE(s->a, m, N * SCAN_CHANNELS);
    CARVE(s->h, m, N * SCAN_CHANNELS);
    CARVE(s->lost, m, N * SCAN_CHANNELS);
    CARVE(s->d, m, SCAN_CHANNELS);
    CARVE(s->dt_bias, m, SCAN_CHANNELS);
}

static Status allocate(Backend *be, ScanBlock *blocks, int n_threads, int64_t N)
{
    Carve m = {0};
    void *memory;
    for (int i = 0; i < n_threads; i++)
        place(&blocks[i], N, &m);
    if (m.overflow)
        FAIL(ERR_MEMORY, "out of memory: a scan of %lld states", (long long)N);
    TRY(cpu_scratch(be, &memory, m.used));
    m = (Carve){.base = memory};
    for (int i = 0; i < n_threads; i++)
        place(&blocks[i], N, &m);
    return OK;
}

/* What of the channels e, e + 1, ... the kernel wants at hand; lanes without one get 0. */
static void enter(ScanBlock *s, const ScanCall *c, int64_t e)
{
    int64_t E = c->E, N = c->N, n = s->channels;
    size_t  bytes = (size_t)n * sizeof(float);
    size_t  all = (size_t)(N * SCAN_CHANNELS) * sizeof(float);
    memset(s->a, 0, all);
    memset(s->h, 0, all);
    memset(s->lost, 0, all);
    memset(s->d, 0, SCAN_CHANNELS * sizeof(float));
    memset(s->dt_bias, 0, SCAN_CHANNELS * sizeof(float));
    memcpy(s->d, c->d + e, bytes);
    memcpy(s->dt_bias, c->dt_bias + e, bytes);
    for (int64_t k = 0; k < N; k++) {
        for (int64_t i = 0; i < n; i++)
            s->a[k * SCAN_CHANNELS + i] = c->a[(e + i) * N + k];
        if (c->state) {
            memcpy(s->h + k * SCAN_CHANNELS, c->state + k * E + e, bytes);
            memcpy(s->lost + k * SCAN_CHANNELS, c->state + (N + k) * E + e, bytes);
        }
    }
}

static void leave(const ScanBlock *s, const ScanCall *c, int64_t e)
{
    int64_t E = c->E, N = c->N;
    size_t  bytes = (size_t)s->channels * sizeof(float);
    for (int64_t k = 0; k < N && c->state; k++) {
        memcpy(c->state + k * E + e, s->h + k * SCAN_CHANNELS, bytes);
        memcpy(c->state + (N + k) * E + e, s->lost + k * SCAN_CHANNELS, bytes);
    }
}

/* Channels e, e + 1, ... of sequence q. */
static void run(ScanBlock *s, const ScanCall *c, int64_t q, int64_t e)
{
    static ScanIsa *const OF[N_CPU_ISAS] = {scan_plain, scan_avx2, scan_avx512};
    int64_t first = c->batch->start[q], at = first * c->E + e;
    s->rows = c->batch->start[q + 1] - first;
    s->channels = i64_min(SCAN_CHANNELS, c->E - e);
    s->n_states = c->N;
    s->stride = c->E;
    s->u = c->u + at;
    s->dt = c->dt + at;
    s->bc = c->bc + first * 2 * c->N;
    s->y = c->y + at;
    enter(s, c, e);
    OF[cpu_isa()](s);
    leave(s, c, e);
}

Status cpu_scan(Backend *be, Tensor *y, const Tensor *u, const Tensor *dt, const Tensor *bc,
                const Scan *s, const Batch *batch, Tensor *state)
{
    int64_t    T = u->shape[0], E = u->shape[1], N = s->n_states;
    int        n_threads = cpu_threads(be, T * E * N);
    ScanBlock *blocks;
    ScanCall   c = {E, N, u->data, dt->data, bc->data, s->a.data, s->d.data, s->dt_bias.data,
                    y->data, state ? state->data : NULL, batch};
    ArenaMark  mark = backend_mark(be);
    ARENA_NEW(blocks, &be->arena, n_threads);
    Status status = allocate(be, blocks, n_threads, N);
    if (status == OK) {
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(n_threads)
        for (int64_t q = 0; q < batch->n_sequences; q++)
            for (int64_t e = 0; e < E; e += SCAN_CHANNELS)
                run(&blocks[omp_get_thread_num()], &c, q, e);
    }
    backend_rewind(be, mark);
    return status;
}
