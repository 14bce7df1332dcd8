/* cpu_linear.c - packing of weights and y = x W^T + bias.
 * y[t,n] = sum_k x[t,k] w[n,k] + bias[n]
 * shapes  x [T,K], y [T,N] f32, W [N,K] packed as cpu_gemm.h says; any T, N, K
 * cost    2 T N K flops; T == 1 reads all of W: memory bound
 * types   f32, or bf16 weights and inputs with f32 sums; weights also as codes
 * threads take a group of columns and up to TASK_CHUNKS chunks of rows each; of T == 1 a
 *         stretch of panels
 * sums    as cpu_gemm.h; T == 1 by the matrix-vector kernel, see gemm_run_open
 * NaN     any NaN in row t makes row t NaN
 * test    tests/kernels/test_linear.c */
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_words.h"
#include "kernels/size.h"

enum {
    TASK_CHUNKS = 4,  // of rows
    SHARES = 2        // a thread takes of one row's product: memory is read fastest in long
};                    //   stretches, and who is late leaves one to the others

_Static_assert((int)PANEL == (int)WORDS_PANEL, "panels of weights are panels of words");

/* PACK_K inputs of all outputs at a time: that part of the panel stays in cache. What rounding
 * has made of them waits in `rounded`. */
static void pack_panel(Word *panel, Dtype dtype, const float *w, int64_t rows, int64_t K)
{
    enum { PACK_K = 64, PACK_WORDS = PACK_K / 2 };
    Word rounded[PANEL][PACK_WORDS] = {0};
    for (int64_t first = 0; first < K; first += PACK_K) {
        int64_t n = i64_min(PACK_K, K - first);
        if (dtype != DTYPE_BF16) {
            words_panel(panel + first * PANEL, (const Word *)(const void *)(w + first), K, rows,
                        n);
            continue;
        }
        for (int64_t row = 0; row < rows; row++) {
            rounded[row][ceil_div(n, 2) - 1] = 0;
            cpu_rows()->round_bf16((uint16_t *)(void *)rounded[row], w + row * K + first, n);
        }
        words_panel(panel + first / 2 * PANEL, rounded[0], PACK_WORDS, rows, ceil_div(n, 2));
    }
}

Status cpu_pack_bias(Backend *be, Linear *out, const float *bias)
{
    float *copy = arena_raw(&be->arena, out->n, sizeof *copy);
    if (!copy)
        FAIL(ERR_MEMORY, "out of memory: bias of %lld", (long long)out->n);
    memcpy(copy, bias, (size_t)out->n * sizeof *copy);
    out->bias = tensor_1d(DTYPE_F32, copy, out->n);
    return OK;
}

/* Room for the panels, and what does not hang on the weights. */
static Status open_panels(Backend *be, Linear *out, const float *bias)
{
    int64_t     step = out->dtype == DTYPE_BF16 ? 32 : 16;
    size_t      panel_bytes;
    CpuWeights *p;
    ARENA_NEW(p, &be->arena, 1);
    p->n_panels = ceil_div(out->n, PANEL);
    p->k_pad = ceil_div(out->k, step) * step;
    if (!size_mul((size_t)p->k_pad, PANEL * dtype_size(out->dtype), &panel_bytes) ||
        !(p->data = cpu_take(be, p->n_panels, panel_bytes)))
        FAIL(ERR_MEMORY, "out of memory: weights [%lld,%lld] as %s", (long long)out->n,
             (long long)out->k, dtype_name(out->dtype));
    out->packed = p;
    return bias ? cpu_pack_bias(be, out, bias) : OK;
}

/* Rows first .. first + n, which are w: whole panels, or the last rows. */
static void pack_rows(Backend *be, const Linear *out, const float *w, int64_t first, int64_t n)
{
    const CpuWeights *p = out->packed;
    int64_t           in_word = out->dtype == DTYPE_BF16 ? 2 : 1;
    int64_t           whole = p->k_pad / in_word, used = ceil_div(out->k, in_word);
#pragma omp parallel for num_threads(cpu_threads(be, n * out->k))
    for (int64_t row = 0; row < n; row += PANEL) {
        Word *panel = (Word *)p->data + (first + row) / PANEL * whole * PANEL;
        pack_panel(panel, out->dtype, w + row * out->k, i64_min(PANEL, n - row), out->k);
        memset(panel + used * PANEL, 0, (size_t)((whole - used) * PANEL) * sizeof *panel);
    }
}

Status cpu_linear_pack(Backend *be, Linear *out, const float *w, const float *bias)
{
    TRY(open_panels(be, out, bias));
    pack_rows(be, out, w, 0, out->n);
    return OK;
}

/* Two panels a thread at a time: they are in its cache still when they are packed. */
Status cpu_linear_rows(Backend *be, Linear *out, const RowReader *rows, const float *bias)
{
    int64_t most = i64_min(2 * PANEL * be->n_threads, out->n);
    void   *w;
    TRY(open_panels(be, out, bias));
    TRY(cpu_scratch(be, &w, (size_t)(most * out->k) * sizeof(float)));
    for (int64_t first = 0, n; first < out->n; first += n) {
        n = i64_min(most, out->n - first);
        TRY(rows->read(rows->context, w, first, n));
        pack_rows(be, out, w, first, n);
    }
    return OK;
}

/* The block's columns of y: what was made there wants the bias only. */
static void finish(const GemmBlock *b, int64_t chunk, float *y)
{
    const Linear *w = b->run->linear;
    const float  *bias = w->bias.data;
    int64_t       cols = gemm_block_cols(b), rows = gemm_chunk_rows(b->run, chunk);
    for (int64_t i = 0; i < rows; i++) {
        const float *c = b->c + i * b->ldc;
        float       *to = y + (chunk * GEMM_ROWS + i) * w->n + b->first;
        if (bias)
            for (int64_t n = 0; n < cols; n++)
                to[n] = c[n] + bias[b->first + n];
        else if (to != c)
            memcpy(to, c, (size_t)cols * sizeof *to);
    }
}

static int64_t n_strips(const GemmRun *run)
{
    return ceil_div(run->n_chunks, TASK_CHUNKS);
}

/* Task `task` of all runs, one after another: a group of columns, a strip of rows. Returns
 * an error of oneDNN, or 0. */
static int run_task(const GemmRun *runs, const LinearOut *outs, int64_t task)
{
    GemmBlock b;
    for (; task >= runs->n_groups * n_strips(runs); runs++, outs++)
        task -= runs->n_groups * n_strips(runs);
    int64_t first = task % n_strips(runs) * TASK_CHUNKS;
    int64_t end = i64_min(first + TASK_CHUNKS, runs->n_chunks);
    gemm_block_open(&b, runs, task / n_strips(runs), omp_get_thread_num());
    for (int64_t chunk = first; chunk < end; chunk++) {
        gemm_block(&b, chunk, outs->y->data);
        finish(&b, chunk, outs->y->data);
    }
    return gemm_block_close(&b);
}

static Status run_together(Backend *be, const LinearOut *outs, int n, const Tensor *x)
{
    GemmRun runs[GEMM_RUNS];
    int64_t n_tasks = 0, work = 0;
    int     error = 0, n_threads;
    TRY(gemm_runs_open(runs, be, outs, n, x));
    for (int i = 0; i < n; i++) {
        n_tasks += runs[i].n_groups * n_strips(&runs[i]);
        work += x->shape[0] * outs[i].w->n * outs[i].w->k;
    }
    n_threads = cpu_threads(be, work);
    int64_t stretch = runs->one_row ? ceil_div(n_tasks, SHARES * n_threads) : 1;
#pragma omp parallel for schedule(dynamic, stretch) num_threads(n_threads)
    for (int64_t task = 0; task < n_tasks; task++) {
        int failed = run_task(runs, outs, task);
        if (failed) {
#pragma omp atomic write
            error = failed;
        }
    }
    return error ? gemm_error(error, "matrix product") : OK;
}

Status cpu_linears(Backend *be, const LinearOut *outs, int n, const Tensor *x)
{
    for (int i = 0; x->shape[0] && i < n; i += GEMM_RUNS)
        TRY(run_together(be, outs + i, (int)i64_min(n - i, GEMM_RUNS), x));
    return OK;
}

Status cpu_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w)
{
    return cpu_linears(be, &(LinearOut){.y = y, .w = w}, 1, x);
}
