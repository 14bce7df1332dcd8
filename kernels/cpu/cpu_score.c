/* cpu_score.c - last layer and log_softmax without their [T,V] matrix.
 * logprob[t] = l[target] - log sum_v exp(l[v]), l = W x_t + bias; best = argmax
 * shapes  x [T,K], W [V,K] packed; any T, V, K
 * cost    2 T V K flops; logits live in blocks of 64 x 256 a thread
 * threads take SPAN_GROUPS groups of columns of 64 rows; what they find is put
 *         together in the order of the columns
 * sums    f32 in 16 lanes a block, then double: cpu_score_isa.c
 * NaN     a NaN or +inf logit makes logprob NaN; best passes over NaN, and is 0
 *         where nothing is above -inf
 * test    tests/kernels/test_score.c */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_gemm.h"
#include "kernels/size.h"

enum { SPAN_GROUPS = 16 };

/* Rows that somebody asks for, and what was found of them. */
typedef struct {
    const ScoreIsa *isa;
    const Linear   *head;
    int64_t         n_rows, n_spans;
    int64_t         span_groups;
    const int32_t  *rows;     // [n_rows] in x
    const int32_t  *targets;  // [T]
    ScoreRow       *found;    // [n_rows, n_spans]
    float          *target;   // [n_rows] logit of the target
} Scores;

/* Block of logits of one chunk: bias, the target's logit, the sums. */
static void fold_block(const Scores *s, GemmBlock *b, int64_t chunk, int64_t span)
{
    const float *bias = s->head->bias.data;
    int64_t      cols = gemm_block_cols(b), n = gemm_chunk_rows(b->run, chunk);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = chunk * GEMM_ROWS + i, target = s->targets[s->rows[row]];
        float  *c = b->c + i * b->cols;
        if (bias)
            for (int64_t v = 0; v < cols; v++)
                c[v] += bias[b->first + v];
        for (int64_t v = cols; v < b->cols; v++)
            c[v] = -INFINITY;
        if (target >= b->first && target < b->first + cols)
            s->target[row] = c[target - b->first];
        s->isa->fold(&s->found[row * s->n_spans + span], c, b->cols, b->first);
    }
}

static int score_span(const Scores *s, const GemmRun *run, int64_t chunk, int64_t span)
{
    int     error = 0;
    int64_t first = span * s->span_groups, end = first + s->span_groups;
    for (int64_t i = 0; i < gemm_chunk_rows(run, chunk); i++)
        s->found[(chunk * GEMM_ROWS + i) * s->n_spans + span] = (ScoreRow){-INFINITY, 0, 0};
    for (int64_t g = first; g < i64_min(end, run->n_groups) && !error; g++) {
        GemmBlock b;
        gemm_block_open(&b, run, g, omp_get_thread_num());
        gemm_block(&b, chunk, NULL);
        fold_block(s, &b, chunk, span);
        error = gemm_block_close(&b);
    }
    return error;
}

static Status score_rows(Backend *be, Scores *s, const Tensor *x)
{
    GemmRun run;
    void   *memory;
    /* As in every backend call the number of spans follows from V alone. */
    int64_t n_panels = ((const CpuWeights *)s->head->packed)->n_panels;
    s->n_spans = ceil_div(n_panels, SPAN_GROUPS * GROUP_PANELS);
    size_t found = (size_t)(s->n_rows * s->n_spans) * sizeof *s->found;
    TRY(gemm_run_open(&run, be, s->head, x, s->rows, s->n_rows,
                      found + (size_t)s->n_rows * sizeof *s->target, &memory));
    s->span_groups = SPAN_GROUPS * GROUP_PANELS / run.group_panels;
    s->found = memory;
    s->target = (float *)(void *)((char *)memory + found);
    int     error = 0;
    int64_t work = s->n_rows * s->head->n * s->head->k;
#pragma omp parallel for schedule(dynamic) num_threads(cpu_threads(be, work))
    for (int64_t task = 0; task < run.n_chunks * s->n_spans; task++) {
        int failed = score_span(s, &run, task % run.n_chunks, task / run.n_chunks);
        if (failed) {
#pragma omp atomic write
            error = failed;
        }
    }
    return error ? gemm_error(error, "product with the vocabulary") : OK;
}

static void finish(const Scores *s, float *logprob, int32_t *best)
{
    for (int64_t row = 0; row < s->n_rows; row++) {
        ScoreRow *found = &s->found[row * s->n_spans];
        int32_t   t = s->rows[row];
        for (int64_t i = 1; i < s->n_spans; i++)
            s->isa->merge(found, &found[i]);
        if (best)
            best[t] = found->best;
        if (s->targets[t] >= 0)
            logprob[t] = (float)((double)s->target[row] - (double)found->top -
                                 log(found->sum));
    }
}

Status cpu_score(Backend *be, const Tensor *x, const Linear *head, const int32_t *targets,
                 float *logprob, int32_t *best)
{
    int64_t   T = x->shape[0];
    ArenaMark mark = arena_mark(&be->arena);
    Scores    s = {.isa = cpu_score_isa(), .head = head, .targets = targets};
    int32_t  *rows;
    ARENA_NEW(rows, &be->arena, T);
    for (int64_t t = 0; t < T; t++) {
        logprob[t] = 0;
        if (best || targets[t] >= 0)
            rows[s.n_rows++] = (int32_t)t;
    }
    s.rows = rows;
    Status status = s.n_rows ? score_rows(be, &s, x) : OK;
    if (status == OK)
        finish(&s, logprob, best);
    arena_rewind(&be->arena, mark);
    return status;
}
