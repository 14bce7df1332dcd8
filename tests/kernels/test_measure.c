/* test_measure.c - the backend that computes nothing: it says of each operation what the real
 * one takes, and of tensors and weights what they would hold. */
#include "tests/check.h"

#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/ref_ops.h"

static Status tensor(Backend *be, Tensor *t, int64_t rows, int64_t cols)
{
    return backend_tensor(be, t, 2, (int64_t[]){rows, cols});
}

TEST(tensors_are_counted_and_have_no_memory)
{
    Backend be;
    Tensor  t;
    T_STATUS_OK(backend_open_measure(&be, 2));
    T_OK(backend_measures(&be) && backend_on_host(&be));
    size_t small = backend_measured(&be).held;
    T_OK(small < 1 << 16);
    ArenaMark outer = backend_mark(&be);
    T_STATUS_OK(tensor(&be, &t, (int64_t)1 << 30, 1 << 8));   // a TiB
    T_STATUS_OK(backend_upload(&be, &t, NULL));
    size_t    one = (size_t)1 << 40;
    ArenaMark inner = backend_mark(&be);
    T_STATUS_OK(tensor(&be, &t, (int64_t)1 << 30, 1 << 8));
    BackendMeasure m = backend_measured(&be);
    T_OK(m.held >= 2 * one + small && m.held < 2 * one + small + 4096 && m.peak == m.held);
    backend_rewind(&be, inner);
    m = backend_measured(&be);
    T_OK(m.held >= one && m.held < one + small + 4096 && m.peak >= 2 * one);
    T_STATUS_OK(tensor(&be, &t, 10, 10));
    T_OK(backend_measured(&be).held >= one + 400);
    backend_rewind(&be, outer);
    m = backend_measured(&be);
    T_OK(m.held == small && m.peak >= 2 * one && m.scratch == 0);
    backend_close(&be);
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_OK(!backend_measures(&be) && backend_on_host(&be));
    backend_close(&be);
}

/* --- operations, each on a backend of its own --- */

enum { T = 150, C = 96, N = 700, HEADS = 4, DIM = 24 };

typedef struct {
    Backend      *be;
    Tensor        x, y;
    Linear        linear;
    Batch         batch;
    int32_t       positions[T], targets[T];
    ValueRecord  *values;
    LogitRecord  *logits;
    ShareRecord  *shares;
} Work;

static Status read_rows(void *context, float *w, int64_t first, int64_t n)
{
    (void)context, (void)first;
    memset(w, 0, (size_t)(n * C) * sizeof *w);
    return OK;
}

static Status run_pack(Work *w, Dtype dtype)
{
    RowReader rows = {read_rows, NULL};
    return op_linear_pack_rows(w->be, &w->linear, &rows, NULL, N, C, dtype);
}

static Status run_linear(Work *w, Dtype dtype)
{
    Tensor y;
    TRY(run_pack(w, dtype));
    TRY(tensor(w->be, &y, T, N));
    return op_linear(w->be, &y, &w->x, &w->linear);
}

static Status run_score(Work *w, Dtype dtype)
{
    float   logprob[T];
    int32_t best[T];
    TRY(run_pack(w, dtype));
    return op_score(w->be, &w->x, &w->linear, w->targets, logprob, best);
}

static Status run_record(Work *w, Dtype dtype)
{
    (void)dtype;
    return op_record(w->be, &w->x, &w->batch, w->positions, w->values);
}

static Status run_attention(Work *w, Dtype dtype)
{
    Attention a = {.n_heads = HEADS, .n_groups = HEADS, .n_maps = 1, .head_dim = DIM,
                   .scale = 0.2f, .norm_eps = -1, .out_scale = 1, .dtype = dtype,
                   .batch = w->batch, .logit_bits = dtype == DTYPE_BF16 ? 4 : 16,
                   .record = w->logits, .shares = w->shares};
    return op_attention(w->be, &w->y, &w->x, &w->x, &w->x, &a);
}

static Status (*const RUNS[])(Work *w, Dtype dtype) = {run_pack, run_linear, run_score,
                                                       run_record, run_attention};

/* Bytes of scratch that a run takes, and those that weights and results hold. */
static Status run(size_t *scratch, size_t *held, int i, Dtype dtype, bool measured)
{
    static const int32_t start[3] = {0, 100, T};
    static const int64_t number[2] = {0, 1};
    Backend     be;
    Arena       a = {0};
    Work        w = {.be = &be, .batch = {2, start, number}};
    ValueRecord values;
    LogitRecord logits;
    ShareRecord shares[HEADS] = {0};
    TRY(measured ? backend_open_measure(&be, 2) : backend_open(&be, "cpu", 2));
    TRY(value_record_init(&values, &a, 0, C, T));
    TRY(logit_record_init(&logits, &a, 0, HEADS, 1, T));
    TRY(tensor(&be, &w.x, T, C));
    TRY(tensor(&be, &w.y, T, C));
    if (!measured)
        memset(w.x.data, 0, tensor_bytes(&w.x));
    for (int t = 0; t < T; t++)
        w.positions[t] = t < 100 ? t : t - 100;
    w.values = &values;
    w.logits = &logits;
    w.shares = shares;
    TRY(RUNS[i](&w, dtype));
    *scratch = measured ? backend_measured(&be).scratch : cpu_state(&be)->scratch.bytes;
    *held = measured ? backend_measured(&be).held : be.arena.used;
    backend_close(&be);
    arena_close(&a);
    return OK;
}

TEST(scratch_and_weights_are_those_of_the_cpu)
{
    for (int i = 0; i < (int)(sizeof RUNS / sizeof *RUNS); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            Dtype  dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
            size_t asked, taken, would_hold, holds;
            T_STATUS_OK(run(&taken, &holds, i, dtype, false));
            T_STATUS_OK(run(&asked, &would_hold, i, dtype, true));
            T_OK(asked == taken && taken > 0);
            T_OK(would_hold >= holds && would_hold < holds + 4096);   // and its own notes
        }
}

TEST(linears_of_codes_take_what_is_said)
{
    Backend be;
    Tensor  x, y;
    Linear  w;
    T_STATUS_OK(backend_open_measure(&be, 1));
    size_t before = backend_measured(&be).held;
    T_STATUS_OK(backend_measure_linear(&be, &w, N, C, DTYPE_BF16, 12345));
    size_t held = backend_measured(&be).held - before;
    T_OK(held >= 12345 && held < 12345 + 1024 && w.n == N && w.k == C);
    T_STATUS_OK(tensor(&be, &x, T, C));
    T_STATUS_OK(tensor(&be, &y, T, N));
    T_STATUS_OK(op_linear(&be, &y, &x, &w));
    T_OK(backend_measured(&be).scratch > 0);
    backend_close(&be);
}
