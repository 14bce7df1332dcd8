/* cuda_score.cu - last layer and log_softmax without their [T,V] matrix.
 * logprob[t] = l[target] - log sum_v exp(l[v]), l = W x_t + bias; best = argmax
 * shapes  x [T,K], W [V,K]; any T, V, K. Rows that nobody asks for are left out
 * cost    2 T V K flops by the products of cuda_linear.h, which bound it: logits in between
 *         stay in the cache
 * memory  16 MiB of logits, LOGITS_ROWS rows at a time, and their inputs
 * launch  a product for as many spans as there is room for, a block of 256 a row and span, a
 *         thread a row for the end
 * sums    exp in f32, 16 a thread, then double, in the order of the words; see cuda_logits.cuh
 * NaN     a NaN or +inf logit makes logprob NaN; best passes over NaN, and is 0 where nothing
 *         is above -inf
 * test    tests/cuda/test_cuda_score.c */
#include "kernels/cuda/cuda_logits.cuh"

/* What a span has of a row. */
struct ScoreSpan {
    double  sum;    // of exp(l - top)
    float   top;
    int32_t best;   // first word with it
};

struct ScoreRow {
    float   logprob;
    int32_t best;
};

/* All of a chunk of rows, in device memory. */
struct Scores {
    ScoreSpan     *found;    // [rows, n_spans]
    float         *target;   // [rows] logit of the target
    const int32_t *targets;  // [rows]
    int64_t        n_spans;
};

/* --- kernels --- */

static __global__ void __launch_bounds__(BLOCK) score_kernel(Scores s, LogitsBlock b)
{
    __shared__ float  tops[BLOCK_WARPS];
    __shared__ int    places[BLOCK_WARPS];
    __shared__ double sums[BLOCK_WARPS];
    float   v[LOGITS_EACH];
    int     best;
    int64_t span = b.first + blockIdx.y, word = span * LOGITS_SPAN;
    int64_t target = s.targets[blockIdx.x] - word;
    logits_load(v, b);
    float top = logits_top(v, &best, tops, places), from = safe_top(top), sum = 0;
#pragma unroll
    for (int j = 0; j < LOGITS_EACH; j++) {
        sum += expf(v[j] - from);
        if (logits_word(j) == target)
            s.target[blockIdx.x] = v[j];
    }
    double all = block_sum((double)sum, sums);
    if (threadIdx.x == 0)
        s.found[blockIdx.x * s.n_spans + span] = {all, top, (int32_t)(word + best)};
}

static __device__ inline void merge(ScoreSpan *row, const ScoreSpan &next)
{
    float top = fmaxf(row->top, next.top), from = safe_top(top);
    if (next.top > row->top)
        row->best = next.best;
    row->sum = row->sum * exp((double)row->top - from) +
               next.sum * exp((double)next.top - from);
    row->top = top;
}

static __global__ void score_end_kernel(ScoreRow *out, Scores s, int64_t n)
{
    for (int64_t i = grid_index(); i < n; i += grid_size()) {
        const ScoreSpan *found = s.found + i * s.n_spans;
        ScoreSpan        row = {0, -INFINITY, 0};
        for (int64_t k = 0; k < s.n_spans; k++)
            merge(&row, found[k]);
        double at = s.targets[i] < 0 ? 0 : (double)s.target[i] - row.top - log(row.sum);
        out[i] = {(float)at, row.best};
    }
}

static __global__ void gather_kernel(float *to, const float *x, const int32_t *rows, int64_t K)
{
    const float *from = x + rows[blockIdx.x] * K;
    to += blockIdx.x * K;
    for (int64_t k = threadIdx.x; k < K; k += BLOCK)
        to[k] = from[k];
}

/* --- a chunk of rows --- */

typedef struct {
    const Tensor *x;
    const Linear *head;
    int64_t       n_rows, chunk;   // of all rows, at a time
    int32_t      *rows;            // [n_rows] in x, host
    int32_t      *row_targets;     // [n_rows] host
    Scores        device;          // of a chunk
    const int32_t *device_rows;    // [n_rows]; NULL: all rows of x
    const int32_t *device_targets; // [n_rows]
    float        *logits;          // [chunk, spans at a time]
    ScoreRow     *out;             // [n_rows] device
} ScoreCall;

static Status chunk_inputs(Backend *be, Tensor *x, const ScoreCall *c, int64_t first, int64_t n)
{
    int64_t K = c->head->k;
    void   *some;
    *x = tensor_2d(DTYPE_F32, (float *)c->x->data + first * K, n, K);
    if (!c->device_rows)
        return OK;
    TRY(cuda_scratch(be, &some, tensor_bytes(x)));
    x->data = some;
    gather_kernel<<<(unsigned)n, BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)some, (const float *)c->x->data, c->device_rows + first, K);
    return cuda_launched("rows to score");
}

static Status score_blocks(Backend *be, const ScoreCall *c, const Scores *s, const Tensor *x)
{
    CudaInput in;
    int64_t   rows = x->shape[0], V = c->head->n, step = logits_spans(c->chunk);
    TRY(cuda_input(be, &in, x, c->head));
    for (int64_t span = 0; span < s->n_spans; span += step) {
        int64_t     word = span * LOGITS_SPAN, n = i64_min(step * LOGITS_SPAN, V - word);
        LogitsBlock b = {c->logits, n, span};
        TRY(cuda_linear_block(be, c->logits, &in, word, n));
        dim3 grid((unsigned)rows, (unsigned)ceil_div(n, LOGITS_SPAN));
        score_kernel<<<grid, BLOCK, 0, cuda_state(be)->stream>>>(*s, b);
        TRY(cuda_launched("score"));
    }
    return OK;
}

static Status score_chunk(Backend *be, const ScoreCall *c, int64_t first)
{
    CudaBlock *mark = cuda_scratch_mark(be);
    int64_t    n = i64_min(c->chunk, c->n_rows - first);
    Scores     s = c->device;
    Tensor     x;
    s.targets = c->device_targets + first;
    TRY(chunk_inputs(be, &x, c, first, n));
    TRY(score_blocks(be, c, &s, &x));
    score_end_kernel<<<grid_for(n), BLOCK, 0, cuda_state(be)->stream>>>(c->out + first, s, n);
    cuda_scratch_rewind(be, mark);
    return cuda_launched("end of score");
}

/* --- the whole --- */

static Status score_scratch(Backend *be, ScoreCall *c)
{
    void   *p[6] = {};
    size_t  rows = (size_t)c->n_rows, chunk = (size_t)c->chunk;
    int64_t V = c->head->n, most = i64_min(V, logits_spans(c->chunk) * LOGITS_SPAN);
    c->device.n_spans = ceil_div(V, LOGITS_SPAN);
    TRY(cuda_scratch(be, &p[0], chunk * (size_t)c->device.n_spans * sizeof(ScoreSpan)));
    TRY(cuda_scratch(be, &p[1], chunk * sizeof(float)));
    TRY(cuda_scratch(be, &p[2], chunk * (size_t)most * sizeof(float)));
    TRY(cuda_scratch(be, &p[3], rows * sizeof(ScoreRow)));
    TRY(cuda_sent(be, &p[4], c->row_targets, rows * sizeof(int32_t)));
    if (c->n_rows < c->x->shape[0])
        TRY(cuda_sent(be, &p[5], c->rows, rows * sizeof(int32_t)));
    c->device.found = (ScoreSpan *)p[0];
    c->device.target = (float *)p[1];
    c->logits = (float *)p[2];
    c->out = (ScoreRow *)p[3];
    c->device_targets = (const int32_t *)p[4];
    c->device_rows = (const int32_t *)p[5];
    return OK;
}

static Status score_rows(Backend *be, ScoreCall *c, float *logprob, int32_t *best)
{
    ScoreRow *out;
    ARENA_NEW(out, &be->arena, c->n_rows);
    c->chunk = i64_min(c->n_rows, i64_min(LOGITS_ROWS, cuda_linear_rows(c->head, LOGITS_SPAN)));
    TRY(score_scratch(be, c));
    for (int64_t first = 0; first < c->n_rows; first += c->chunk)
        TRY(score_chunk(be, c, first));
    TRY(cuda_fetch(be, out, c->out, (size_t)c->n_rows * sizeof *out));
    for (int64_t i = 0; i < c->n_rows; i++) {
        logprob[c->rows[i]] = out[i].logprob;
        if (best)
            best[c->rows[i]] = out[i].best;
    }
    return OK;
}

static Status score(Backend *be, const Tensor *x, const Linear *head, const int32_t *targets,
                    float *logprob, int32_t *best)
{
    int64_t   T = x->shape[0];
    ScoreCall c = {};
    c.x = x;
    c.head = head;
    ARENA_NEW(c.rows, &be->arena, T);
    ARENA_NEW(c.row_targets, &be->arena, T);
    for (int64_t t = 0; t < T; t++) {
        logprob[t] = 0;
        if (!best && targets[t] < 0)
            continue;
        c.rows[c.n_rows] = (int32_t)t;
        c.row_targets[c.n_rows++] = targets[t];
    }
    return c.n_rows ? score_rows(be, &c, logprob, best) : OK;
}

Status cuda_score(Backend *be, const Tensor *x, const Linear *head, const int32_t *targets,
                  float *logprob, int32_t *best)
{
    TRY(cuda_begin(be, NULL));
    ArenaMark mark = arena_mark(&be->arena);
    Status    s = score(be, x, head, targets, logprob, best);
    arena_rewind(&be->arena, mark);
    return s;
}
