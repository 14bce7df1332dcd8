/* cpu_convolve.c - causal convolution of each channel along its sequence, then SiLU.
 * y[t,e] = silu(b[e] + sum_j w[e,j] x[t - (J - 1) + j, e]): cpu_convolve_isa.c
 * shapes  x, y [T,E] f32, w [E,J], b [E], state [J - 1, E]; any T, E, J >= 1
 * cost    8TE bytes, TE (exp + 2J flops): memory bound
 * sums    one chain a value: threads and cuts change nothing
 * NaN     makes J rows of its channel NaN
 * test    tests/kernels/test_convolve.c */
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_carve.h"
#include "kernels/cpu/cpu_ssm.h"
#include "kernels/size.h"

enum { PART = 1024 };  // channels: J rows of a part fit the nearest cache

typedef struct {
    float *w;      // [J,E]: taps as rows
    float *zeros;  // [E]: a bias or a row that is not there
} ConvolveScratch;

static void place(ConvolveScratch *s, int64_t J, int64_t E, Carve *m)
{
    CARVE(s->w, m, J * E);
    CARVE(s->zeros, m, E);
}

static Status prepare(Backend *be, ConvolveScratch *s, const Tensor *w)
{
    int64_t      E = w->shape[0], J = w->shape[1];
    Carve        m = {0};
    void        *memory;
    const float *taps = w->data;
    place(s, J, E, &m);
    CHECK(!m.overflow);  // w itself is larger
    TRY(cpu_scratch(be, &memory, m.used));
    m = (Carve){.base = memory};
    place(s, J, E, &m);
    memset(s->zeros, 0, (size_t)E * sizeof *s->zeros);
    for (int64_t j = 0; j < J; j++)
        for (int64_t e = 0; e < E; e++)
            s->w[j * E + e] = taps[e * J + j];
    return OK;
}

/* Rows of one sequence: x, y [T,E], old [J - 1, E] or one row of zeros with old_stride 0. */
typedef struct {
    ConvolveRow  row;   // its members that are the same for all
    const float *x, *old;
    float       *y;
    int64_t      T;
} Sequence;

static void convolve_part(const Sequence *s, int64_t t, int64_t e)
{
    static ConvolveIsa *const OF[N_CPU_ISAS] = {convolve_plain, convolve_avx2,
                                                convolve_avx512};
    ConvolveRow c = s->row;
    int64_t     E = c.stride, first = t - (c.n_taps - 1);  // row of tap 0
    c.n_old = i64_max(0, -first);
    c.w += e;
    c.b += e;
    c.old = s->old + t * c.old_stride + e;
    c.x = s->x + i64_max(0, first) * E + e;
    OF[cpu_isa()](s->y + t * E + e, &c, i64_min(PART, E - e));
}

/* state [n,E] becomes the last n rows of itself and x [T,E]. */
static void keep_last(float *state, int64_t n, const float *x, int64_t T, int64_t E)
{
    int64_t from_x = i64_min(n, T), from_state = n - from_x;
    memmove(state, state + from_x * E, (size_t)(from_state * E) * sizeof *state);
    memcpy(state + from_state * E, x + (T - from_x) * E, (size_t)(from_x * E) * sizeof *x);
}

Status cpu_convolve(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, const Tensor *b,
                    const Batch *batch, Tensor *state)
{
    int64_t         E = w->shape[0], J = w->shape[1];
    ConvolveScratch scratch;
    TRY(prepare(be, &scratch, w));
    for (int64_t q = 0; q < batch->n_sequences; q++) {
        int64_t  start = batch->start[q], T = batch->start[q + 1] - start;
        Sequence s = {
            .row = {.n_taps = J, .stride = E, .old_stride = state ? E : 0, .w = scratch.w,
                    .b = b->data ? b->data : scratch.zeros},
            .x = (const float *)x->data + start * E,
            .old = state ? state->data : scratch.zeros,
            .y = (float *)y->data + start * E, .T = T};
#pragma omp parallel for collapse(2) num_threads(cpu_threads(be, T * E * J))
        for (int64_t t = 0; t < T; t++)
            for (int64_t e = 0; e < E; e += PART)
                convolve_part(&s, t, e);
        if (state)
            keep_last(state->data, J - 1, s.x, T, E);
    }
    return OK;
}
