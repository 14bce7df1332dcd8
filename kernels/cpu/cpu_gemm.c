/* cpu_gemm.c - blocks of products: rows to the form they are multiplied in, the kernel.
 * C [R, 64 p] f32 = X [R, k_pad] W, W p panels of cpu_gemm.h, R <= 64
 * shapes  any N, K, rows >= 0
 * types   f32; bf16 inputs and weights with f32 sums where the processor multiplies these,
 *         else the panel is expanded and multiplied in f32; codes are decoded to one of these
 * sums    one order an output, in whichever row of which chunk it stands
 * test    tests/kernels/test_linear.c */
#include "kernels/cpu/cpu_gemm.h"

#include <string.h>

#include "kernels/cpufeat.h"
#include "kernels/half.h"
#include "kernels/size.h"

const void *cpu_weights_panel(const CpuWeights *w, Dtype dtype, int64_t i)
{
    return (const char *)w->data + (size_t)(i * w->k_pad * PANEL) * dtype_size(dtype);
}

/* --- rows waiting for one layer --- */

/* Rows of the shape that takes the last n of a chunk. */
static int64_t rows_of_shape(int64_t n)
{
    return n <= 4 ? 4 : n <= 8 ? 8 : ceil_div(n, 16) * 16;
}

/* Whole groups of panels and the last one, for chunks of that many rows. */
static Status choose_shapes(const Gemm *gemm[2], const GemmRun *run, CpuState *st,
                            int64_t n_rows)
{
    int64_t last_panels = run->weights->n_panels - (run->n_groups - 1) * run->group_panels;
    int64_t k_pad = run->weights->k_pad;
    TRY(gemm_get(&gemm[0], st, n_rows, k_pad, run->group_panels));
    return gemm_get(&gemm[1], st, n_rows, k_pad, last_panels);
}

static bool all_there(const Gemm *const gemm[2])
{
    return gemm_is_there(gemm[0]) && gemm_is_there(gemm[1]);
}

/* Ours or oneDNN's follows from the layer and the processor alone, never from
 * the number of rows: their bits differ. */
static Status choose_onednn(GemmRun *run, CpuState *st)
{
    TRY(choose_shapes(run->gemm[0], run, st, GEMM_ROWS));
    if (!all_there(run->gemm[0]))
        return OK;
    run->ours = false;
    run->last_rows = rows_of_shape(run->n_rows - (run->n_chunks - 1) * GEMM_ROWS);
    TRY(choose_shapes(run->gemm[1], run, st, run->last_rows));
    if (!all_there(run->gemm[1])) {
        memcpy(run->gemm[1], run->gemm[0], sizeof run->gemm[0]);
        run->last_rows = GEMM_ROWS;
    }
    return OK;
}

static void group_panels(GemmRun *run, int64_t n)
{
    run->group_panels = i64_min(n, run->weights->n_panels);
    run->n_groups = ceil_div(run->weights->n_panels, run->group_panels);
}

static Status choose_kernel(GemmRun *run, CpuState *st)
{
    bool bf16 = run->linear->dtype == DTYPE_BF16;
    group_panels(run, run->one_row ? 1 : GROUP_PANELS);  // 1: as equal shares as can be
    if (run->one_row)
        return OK;
    run->ours = true;
    if (bf16 && cpu_isa() == CPU_AVX512 && cpu_bf16() == CPU_BF16_TILES)
        TRY(choose_onednn(run, st));
    if (run->ours)
        group_panels(run, 1);
    run->bf16 = bf16 && (!run->ours || cpu_has_bf16_dot());
    run->unpack = run->weights->codes || (bf16 && !run->bf16);
    return OK;
}

/* Of a panel as it is multiplied. */
static size_t panel_bytes(const GemmRun *run)
{
    return (size_t)(run->weights->k_pad * PANEL) * (run->bf16 ? 2 : 4);
}

/* Bytes of each thread: C, oneDNN's scratchpad, unpacked panels. */
static size_t thread_bytes(const GemmRun *run)
{
    size_t pad = 0;
    for (int i = 0; i < 4 && !run->ours && !run->one_row; i++)
        pad = (size_t)i64_max((int64_t)pad,
                              (int64_t)gemm_scratchpad(run->gemm[i / 2][i % 2]));
    size_t panels = run->unpack ? (size_t)run->group_panels * panel_bytes(run) : 0;
    return GEMM_ROWS * GROUP_COLS * sizeof(float) + (pad + 63) / 64 * 64 + panels;
}

/* Inputs in the order of the codes. */
static void stage_columns(const GemmRun *run, float *to, const float *x)
{
    const int32_t *order = run->weights->codes->order;
    bool           bf16 = run->linear->dtype == DTYPE_BF16;
    for (int64_t i = 0; i < run->linear->k; i++)
        to[i] = bf16 ? bf16_round(x[order[i]]) : x[order[i]];
}

static void stage_row(const GemmRun *run, char *to, const float *x)
{
    int64_t K = run->linear->k, k_pad = run->weights->k_pad;
    size_t  item = run->bf16 ? 2 : 4;
    if (run->one_row && run->weights->codes && run->weights->codes->order)
        stage_columns(run, (float *)(void *)to, x);
    else if (run->bf16)
        cpu_rows()->round_bf16((uint16_t *)(void *)to, x, K);
    else if (run->linear->dtype == DTYPE_BF16)
        cpu_rows()->round_to_bf16((float *)(void *)to, x, K);
    else
        memcpy(to, x, (size_t)K * sizeof *x);
    memset(to + (size_t)K * item, 0, (size_t)(k_pad - K) * item);
}

static void stage(GemmRun *run, const float *x, const int32_t *rows, int n_threads)
{
    int64_t n = run->n_rows;
    if (run->last_rows)
        n = (run->n_chunks - 1) * GEMM_ROWS + run->last_rows;
#pragma omp parallel for num_threads(n_threads)
    for (int64_t i = 0; i < n; i++) {
        char *to = run->staged + (size_t)i * run->row_bytes;
        if (i >= run->n_rows)
            memset(to, 0, run->row_bytes);
        else
            stage_row(run, to, x + (rows ? rows[i] : i) * run->linear->k);
    }
}

/* Four chains: one would wait for itself longer than the product takes. */
static float sum_of(const float *x, int64_t n)
{
    double  sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            sum[j] += (double)x[i + j];
    for (; i < n; i++)
        sum[0] += (double)x[i];
    return (float)(sum[0] + sum[1] + (sum[2] + sum[3]));
}

/* What the product of one row with codes wants beside it: behind it, as its chunk has room
 * for more rows. */
static void prepare_codes(GemmRun *run)
{
    const CpuCodes *q = run->weights->codes;
    const float    *x = (const float *)(void *)run->staged;
    float          *sums = (float *)(void *)(run->staged + run->row_bytes);
    uint32_t       *pairs = (uint32_t *)(void *)(run->staged + 2 * run->row_bytes);
    for (int64_t g = 0; q->offsets && g < q->n_groups; g++)
        sums[g] = sum_of(x + g * q->group, q->group);
    run->group_sums = sums;
    if (run->linear->dtype != DTYPE_BF16 || q->bits == 8 || !cpu_has_bf16_dot())
        return;
    run->codes->pairs(pairs, x, ceil_div(q->k, CODE_BLOCK), q->bits);
    run->pairs = pairs;
}

/* Kernels and sizes; no memory yet. */
static Status plan_run(GemmRun *run, Backend *be, const Linear *w, const Tensor *x,
                       bool all_rows, int64_t n_rows)
{
    *run = (GemmRun){.linear = w, .weights = w->packed, .panel = cpu_panel(),
                     .codes = cpu_codes()};
    run->n_rows = n_rows;
    run->n_chunks = ceil_div(n_rows, GEMM_ROWS);
    run->one_row = x->shape[0] == 1;
    TRY(choose_kernel(run, cpu_state(be)));
    run->x = x->data;
    run->in_place = w->dtype == DTYPE_F32 && w->k == run->weights->k_pad && all_rows &&
                    !run->one_row;
    run->row_bytes = (size_t)run->weights->k_pad * (run->bf16 ? 2 : 4);
    run->thread_bytes = thread_bytes(run);
    return OK;
}

/* Do they want the same rows of one x, in the same form? */
static bool stage_alike(const GemmRun *a, const GemmRun *b)
{
    return !a->one_row && a->bf16 == b->bf16 && a->row_bytes == b->row_bytes &&
           a->linear->dtype == b->linear->dtype && a->in_place == b->in_place &&
           a->last_rows == b->last_rows;
}

/* *bytes: behind what the runs stage, each its own or what the first does. */
static Status size_staged(size_t *bytes, GemmRun *runs, int n)
{
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        GemmRun *run = &runs[i];
        size_t   rows = run->in_place ? 0 : (size_t)(run->n_chunks * GEMM_ROWS), own;
        run->shares_rows = i > 0 && stage_alike(run, runs);
        run->staged_at = run->shares_rows ? 0 : *bytes;
        if (!size_mul(rows, run->row_bytes, &own) ||
            (!run->shares_rows && !size_add(*bytes, own, bytes)))
            FAIL(ERR_MEMORY, "out of memory: %lld rows of %zu bytes", (long long)run->n_rows,
                 run->row_bytes);
    }
    return OK;
}

/* Planned runs to memory: `extra` bytes of the caller's, room for one block of whichever run
 * for each thread, the rows. */
static Status place_runs(GemmRun *runs, int n, Backend *be, const int32_t *rows, size_t extra,
                         void **extra_at)
{
    size_t staged, of_thread = 0, bytes;
    char  *memory;
    TRY(size_staged(&staged, runs, n));
    for (int i = 0; i < n; i++)
        of_thread = runs[i].thread_bytes > of_thread ? runs[i].thread_bytes : of_thread;
    extra = (extra + 63) / 64 * 64;
    size_t threads = (size_t)be->n_threads * of_thread;
    if (!size_add(staged, threads, &bytes) || !size_add(bytes, extra, &bytes))
        FAIL(ERR_MEMORY, "out of memory: inputs of %zu bytes", staged);
    TRY(cpu_scratch(be, (void **)&memory, bytes));
    if (extra_at)
        *extra_at = memory;
    for (int i = 0; i < n; i++) {
        GemmRun *run = &runs[i];
        run->thread_memory = memory + extra;
        run->thread_bytes = of_thread;
        run->staged = memory + extra + threads + run->staged_at;
        if (!run->in_place && !run->shares_rows)
            stage(run, run->x, rows, cpu_threads(be, run->n_rows * run->linear->k));
        if (run->one_row && run->weights->codes)
            prepare_codes(run);
    }
    return OK;
}

Status gemm_run_open(GemmRun *run, Backend *be, const Linear *w, const Tensor *x,
                     const int32_t *rows, int64_t n_rows, size_t extra, void **extra_at)
{
    TRY(plan_run(run, be, w, x, !rows, n_rows));
    return place_runs(run, 1, be, rows, extra, extra_at);
}

Status gemm_runs_open(GemmRun *runs, Backend *be, const LinearOut *outs, int n,
                      const Tensor *x)
{
    for (int i = 0; i < n; i++)
        TRY(plan_run(&runs[i], be, outs[i].w, x, true, x->shape[0]));
    return place_runs(runs, n, be, NULL, 0, NULL);
}

/* --- one thread's block --- */

static char *block_memory(const GemmRun *run, int thread)
{
    return run->thread_memory + (size_t)thread * run->thread_bytes;
}

/* Chunks of both shapes share what a thread has; they come one after another. */
static int open_calls(GemmBlock *b, void *pad)
{
    for (int last = 0; last < 2; last++) {
        int error = gemm_call_open(&b->call[last], b->run->gemm[last][b->last_group],
                                   b->memory, b->panels, pad);
        if (error)
            return error;
    }
    return 0;
}

/* The panels of a block to the layout they are multiplied in. */
static void unpack_panels(const GemmBlock *b, char *to)
{
    const GemmRun    *run = b->run;
    const CpuWeights *w = run->weights;
    for (int64_t i = 0; i < b->n_panels; i++, to += panel_bytes(run)) {
        int64_t panel = b->first / PANEL + i;
        if (!w->codes)
            run->panel->expand((float *)(void *)to, cpu_weights_panel(w, DTYPE_BF16, panel),
                               w->k_pad);
        else if (run->bf16)
            run->codes->decode_bf16((uint16_t *)(void *)to, w, panel);
        else
            run->codes->decode((float *)(void *)to, w, panel,
                               run->linear->dtype == DTYPE_BF16);
    }
}

void gemm_block_open(GemmBlock *b, const GemmRun *run, int64_t group, int thread)
{
    char *memory = block_memory(run, thread);
    *b = (GemmBlock){.run = run, .memory = (float *)(void *)memory};
    b->last_group = group == run->n_groups - 1;
    b->n_panels = i64_min(run->group_panels,
                          run->weights->n_panels - group * run->group_panels);
    b->cols = b->n_panels * PANEL;
    b->first = group * run->group_panels * PANEL;
    if (!run->weights->codes)
        b->panels = cpu_weights_panel(run->weights, run->linear->dtype,
                                      group * run->group_panels);
    if (run->one_row)
        return;
    char *pad = memory + GEMM_ROWS * GROUP_COLS * sizeof(float);
    if (run->unpack) {
        char *panels = memory + run->thread_bytes -
                       (size_t)run->group_panels * panel_bytes(run);
        unpack_panels(b, panels);
        b->panels = panels;
    }
    if (!run->ours)
        b->error = open_calls(b, pad);
}

/* The vector against each panel, by the kernel for one row. */
static void one_row(GemmBlock *b)
{
    const GemmRun *run = b->run;
    const float   *x = (const float *)(void *)run->staged;
    int64_t        K = run->weights->k_pad;
    for (int64_t i = 0; i < b->n_panels; i++) {
        float *c = b->c + i * PANEL;
        if (run->pairs)
            run->codes->dots(c, run->pairs, run->group_sums, run->weights,
                             b->first / PANEL + i);
        else if (run->weights->codes)
            run->codes->row(c, x, run->group_sums, run->weights, b->first / PANEL + i);
        else if (run->linear->dtype == DTYPE_BF16)
            run->panel->row_bf16(c, x, (const uint16_t *)b->panels + i * K * PANEL, K);
        else
            run->panel->row_f32(c, x, (const float *)b->panels + i * K * PANEL, K);
    }
}

/* Where a chunk's rows lie. */
static const void *chunk_rows(const GemmRun *run, int64_t chunk)
{
    int64_t row = chunk * GEMM_ROWS;
    if (run->in_place)
        return run->x + row * run->linear->k;
    return run->staged + (size_t)row * run->row_bytes;
}

/* The chunk's rows, panel by panel. */
static void our_rows(const GemmBlock *b, int64_t chunk)
{
    const GemmRun *run = b->run;
    const char    *panel = b->panels;
    const void    *x = chunk_rows(run, chunk);
    int64_t        n = gemm_chunk_rows(run, chunk), K = run->weights->k_pad;
    for (int64_t i = 0; i < b->n_panels; i++, panel += panel_bytes(run)) {
        float *c = b->c + i * PANEL;
        if (run->bf16)
            run->panel->rows_bf16(c, b->ldc, x, n, (const void *)panel, K);
        else
            run->panel->rows_f32(c, b->ldc, x, n, (const void *)panel, K);
    }
}

void gemm_block(GemmBlock *b, int64_t chunk, float *y)
{
    const GemmRun *run = b->run;
    bool           in_place = y && run->ours && gemm_block_cols(b) == b->cols;
    b->c = in_place ? y + chunk * GEMM_ROWS * run->linear->n + b->first : b->memory;
    b->ldc = in_place ? run->linear->n : b->cols;
    if (run->one_row)
        one_row(b);
    else if (run->ours)
        our_rows(b, chunk);
    else if (!b->error)
        b->error = gemm_call(&b->call[chunk == run->n_chunks - 1], chunk_rows(run, chunk));
}

int gemm_block_close(GemmBlock *b)
{
    for (int last = 0; last < 2; last++)
        gemm_call_close(&b->call[last]);
    return b->error;
}
