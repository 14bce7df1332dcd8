/* cpu_divergence.c - the last layers of two models side by side, without a [T,V] matrix.
 * kl[t] = sum_v p_b[v] (log p_b[v] - log p_a[v]), p = softmax(W x_t + bias) of the model
 * a and of the reference b; log p of the target and the first argmax of both
 * shapes  x_a [T,Ka], x_b [T,Kb], W_a [V,Ka], W_b [V,Kb] packed; any T, V, Ka, Kb
 * cost    2 T V (Ka + Kb) flops and two exp in double a logit; logits live in two blocks
 *         of 64 x 256 a thread
 * threads take SPAN_GROUPS groups of columns of 64 rows; what they find is put
 *         together in the order of the columns
 * sums    double: cpu_divergence_isa.c
 * NaN     a NaN or +inf logit of a row makes its kl and that model's log p NaN
 * test    tests/kernels/test_divergence_op.c */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu_carve.h"
#include "kernels/cpu/cpu_gemm.h"

enum { SPAN_GROUPS = 16 };

/* The rows of both models, and what was found of them. */
typedef struct {
    const DivergenceIsa *isa;
    const HeadPair      *pair;
    GemmRun              run[2];
    int64_t              n_rows, n_spans, n_panels;
    DivergenceRow       *found;      // [n_rows, n_spans]
    float               *target[2];  // [n_rows] logit of the target
} Divergences;

/* One thread's blocks of both. One may have fewer columns than the other: it is then
 * opened again for each part of it. */
typedef struct {
    GemmBlock block[2];
    int64_t   group[2];   // -1: none is open
} BlockPair;

/* --- blocks --- */

static int close_block(BlockPair *b, int i)
{
    int error = b->group[i] < 0 ? 0 : gemm_block_close(&b->block[i]);
    b->group[i] = -1;
    return error;
}

/* Columns below N become logits, those past it words that cannot come. */
static void add_bias(const GemmBlock *b, int64_t chunk)
{
    const float *bias = b->run->linear->bias.data;
    int64_t      cols = gemm_block_cols(b), n = gemm_chunk_rows(b->run, chunk);
    for (int64_t i = 0; i < n; i++) {
        float *c = b->c + i * b->cols;
        for (int64_t v = 0; bias && v < cols; v++)
            c[v] += bias[b->first + v];
        for (int64_t v = cols; v < b->cols; v++)
            c[v] = -INFINITY;
    }
}

/* The block of model i that holds `panel`. */
static int open_block(BlockPair *b, const Divergences *d, int i, int64_t panel, int64_t chunk)
{
    int64_t group = panel / d->run[i].group_panels;
    if (group == b->group[i])
        return 0;
    int error = close_block(b, i);
    if (error)
        return error;
    gemm_block_open(&b->block[i], &d->run[i], group, omp_get_thread_num());
    b->group[i] = group;
    gemm_block(&b->block[i], chunk, NULL);
    add_bias(&b->block[i], chunk);
    return b->block[i].error;
}

/* Columns first .. first + n, which both blocks have. */
static void fold_columns(const Divergences *d, const BlockPair *b, int64_t chunk,
                         int64_t span, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < gemm_chunk_rows(&d->run[0], chunk); i++) {
        int64_t      row = chunk * GEMM_ROWS + i, target = d->pair->targets[row] - first;
        const float *c[2];
        for (int k = 0; k < 2; k++) {
            c[k] = b->block[k].c + i * b->block[k].cols + first - b->block[k].first;
            if (target >= 0 && target < n)
                d->target[k][row] = c[k][target];
        }
        d->isa->fold(&d->found[row * d->n_spans + span], c[0], c[1], n, first);
    }
}

static int64_t block_end(const GemmBlock *b)
{
    return b->first / PANEL + b->n_panels;
}

static int fold_span(const Divergences *d, int64_t chunk, int64_t span)
{
    BlockPair b = {.group = {-1, -1}};
    int       error = 0;
    int64_t   panel = span * SPAN_GROUPS * GROUP_PANELS;
    int64_t   end = i64_min(panel + SPAN_GROUPS * GROUP_PANELS, d->n_panels);
    for (int64_t i = 0; i < gemm_chunk_rows(&d->run[0], chunk); i++)
        d->found[(chunk * GEMM_ROWS + i) * d->n_spans + span] =
            (DivergenceRow){.top = {-INFINITY, -INFINITY}};
    while (panel < end && !error) {
        for (int i = 0; i < 2 && !error; i++)
            error = open_block(&b, d, i, panel, chunk);
        if (error)
            break;
        int64_t to = i64_min(block_end(&b.block[0]), block_end(&b.block[1]));
        fold_columns(d, &b, chunk, span, panel * PANEL, (to - panel) * PANEL);
        panel = to;
    }
    for (int i = 0; i < 2; i++) {
        int failed = close_block(&b, i);
        error = error ? error : failed;
    }
    return error;
}

/* --- the whole --- */

static void place(Divergences *d, Carve *m)
{
    CARVE(d->found, m, d->n_rows * d->n_spans);
    CARVE(d->target[0], m, d->n_rows);
    CARVE(d->target[1], m, d->n_rows);
}

/* Each model's rows take a scratch of their own; ours lies in the first. */
static Status open_runs(Backend *be, Divergences *d)
{
    const HeadPair *p = d->pair;
    Carve           m = {0};
    void           *memory;
    place(d, &m);
    if (m.overflow)
        FAIL(ERR_MEMORY, "out of memory: divergence of %lld rows", (long long)d->n_rows);
    TRY(gemm_run_open(&d->run[0], be, p->head[0], p->x[0], NULL, d->n_rows, m.used, &memory));
    m = (Carve){.base = memory};
    place(d, &m);
    cpu_scratch_swap(be);
    return gemm_run_open(&d->run[1], be, p->head[1], p->x[1], NULL, d->n_rows, 0, NULL);
}

static double log_target(const DivergenceRow *row, int i, float target)
{
    return (double)target - (double)row->top[i] - log(row->sum[i]);
}

/* Rounding may take a KL of nothing below it. */
static void finish(const Divergences *d)
{
    const HeadPair *p = d->pair;
    for (int64_t t = 0; t < d->n_rows; t++) {
        DivergenceRow *row = &d->found[t * d->n_spans];
        for (int64_t i = 1; i < d->n_spans; i++)
            d->isa->merge(row, &row[i]);
        double kl = row->cross / row->sum[1] +
                    ((double)row->top[0] - (double)row->top[1]) +
                    (log(row->sum[0]) - log(row->sum[1]));
        p->kl[t] = kl < 0 ? 0 : kl;
        for (int i = 0; i < 2; i++) {
            p->best[i][t] = row->best[i];
            p->logprob[i][t] =
                p->targets[t] < 0 ? 0 : log_target(row, i, d->target[i][t]);
        }
    }
}

Status cpu_divergence(Backend *be, const HeadPair *p)
{
    Divergences d = {.isa = cpu_divergence_isa(), .pair = p, .n_rows = p->x[0]->shape[0]};
    d.n_panels = ((const CpuWeights *)p->head[0]->packed)->n_panels;
    d.n_spans = ceil_div(d.n_panels, SPAN_GROUPS * GROUP_PANELS);
    TRY(open_runs(be, &d));
    int     error = 0;
    int64_t work = d.n_rows * p->head[0]->n * (p->head[0]->k + p->head[1]->k);
#pragma omp parallel for schedule(dynamic) num_threads(cpu_threads(be, work))
    for (int64_t task = 0; task < d.run[0].n_chunks * d.n_spans; task++) {
        int failed = fold_span(&d, task % d.run[0].n_chunks, task / d.run[0].n_chunks);
        if (failed) {
#pragma omp atomic write
            error = failed;
        }
    }
    if (error)
        return gemm_error(error, "product with the vocabulary");
    finish(&d);
    return OK;
}
