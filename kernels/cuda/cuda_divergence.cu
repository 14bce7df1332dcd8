/* cuda_divergence.cu - the last layers of two models side by side, without a [T,V] matrix.
 * With e_v = exp(b_v - top_b) of the reference b and logits a of the model,
 *   KL(p_b || p_a) = sum_v e_v (b_v - a_v) / sum_v e_v + log sum exp a - log sum exp b
 * and log p of the target and the first argmax of both
 * shapes  x_a [T,Ka], x_b [T,Kb], W_a [V,Ka], W_b [V,Kb]; any T, V, Ka, Kb
 * cost    2 T V (Ka + Kb) flops by the products of cuda_linear.h and two exp in double a logit:
 *         on GPUs that do a 64th as many in double these bound it
 * memory  two times 16 MiB of logits, LOGITS_ROWS rows at a time, and their inputs
 * launch  two products for as many spans as there is room for, a block of 256 a row and span, a
 *         thread a row for the end
 * sums    double, exp too: KL is a small difference of large numbers, and its quantiles near 0
 *         would drown in f32. 16 words a thread, then threads, then spans in order
 * -inf    e_v = 0 adds nothing, whatever a_v; a_v = -inf with e_v > 0 makes KL +inf
 * NaN     a NaN or +inf logit of a row makes its KL and that model's log p NaN
 * test    tests/cuda/test_cuda_divergence.c */
#include "kernels/cuda/cuda_logits.cuh"

/* What a span has of a row; [0] the model, [1] its reference. */
struct PairSpan {
    double  sum[2];   // of exp(l - top)
    double  cross;    // of e_v (b_v - a_v)
    float   top[2];
    int32_t best[2];  // first word with it
};

struct PairRow {
    double  kl, logprob[2];
    int32_t best[2];
};

/* All of a chunk of rows, in device memory. */
struct Pairs {
    PairSpan      *found;      // [rows, n_spans]
    float         *target[2];  // [rows] logit of the target
    const int32_t *targets;    // [rows]
    int64_t        n_spans;
};

/* --- kernels --- */

/* exp(x) for x <= 0 and NaN; 0 where results would be subnormal. */
static __device__ inline double exp_below(double x)
{
    double e = 0;
    if (!(x < -708))
        e = exp(x);
    return e;
}

static __global__ void __launch_bounds__(BLOCK)
pair_kernel(Pairs p, LogitsBlock a, LogitsBlock b)
{
    __shared__ float  tops[BLOCK_WARPS];
    __shared__ int    places[BLOCK_WARPS];
    __shared__ double sums[BLOCK_WARPS];
    float   va[LOGITS_EACH], vb[LOGITS_EACH];
    int     best[2];
    int64_t span = a.first + blockIdx.y, word = span * LOGITS_SPAN;
    int64_t target = p.targets[blockIdx.x] - word;
    logits_load(va, a);
    logits_load(vb, b);
    float  top_a = logits_top(va, &best[0], tops, places);
    float  top_b = logits_top(vb, &best[1], tops, places);
    double from_a = safe_top(top_a), from_b = safe_top(top_b), sum_a = 0, sum_b = 0, cross = 0;
#pragma unroll
    for (int j = 0; j < LOGITS_EACH; j++) {
        double e = exp_below(vb[j] - from_b);
        sum_a += exp_below(va[j] - from_a);
        sum_b += e;
        if (e != 0)  // 0 * inf is not 0
            cross += e * ((double)vb[j] - va[j]);
        if (logits_word(j) == target) {
            p.target[0][blockIdx.x] = va[j];
            p.target[1][blockIdx.x] = vb[j];
        }
    }
    sum_a = block_sum(sum_a, sums);
    sum_b = block_sum(sum_b, sums);
    cross = block_sum(cross, sums);
    if (threadIdx.x == 0)
        p.found[blockIdx.x * p.n_spans + span] = {{sum_a, sum_b},
                                                  cross,
                                                  {top_a, top_b},
                                                  {(int32_t)(word + best[0]),
                                                   (int32_t)(word + best[1])}};
}

/* A sum so far to the scale of a new top. One of +inf whose words have become impossible goes
 * with them. */
static __device__ inline double rescale(double sum, float old, float to)
{
    double scale = exp((double)old - (double)to);
    return scale == 0 && !isnan(sum) ? 0 : sum * scale;
}

static __device__ inline void merge(PairSpan *row, const PairSpan &next)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float old = row->top[i], other = next.top[i];
        float top = fmaxf(old, other), to = safe_top(top);
        if (other > old)
            row->best[i] = next.best[i];
        row->sum[i] = rescale(row->sum[i], old, to) + rescale(next.sum[i], other, to);
        if (i == 1)
            row->cross = rescale(row->cross, old, to) + rescale(next.cross, other, to);
        row->top[i] = top;
    }
}

/* Rounding may take a KL of nothing below it. */
static __global__ void pair_end_kernel(PairRow *out, Pairs p, int64_t n)
{
    for (int64_t i = grid_index(); i < n; i += grid_size()) {
        const PairSpan *found = p.found + i * p.n_spans;
        PairSpan        row = {{0, 0}, 0, {-INFINITY, -INFINITY}, {0, 0}};
        PairRow         r;
        for (int64_t k = 0; k < p.n_spans; k++)
            merge(&row, found[k]);
        r.kl = row.cross / row.sum[1] + ((double)row.top[0] - (double)row.top[1]) +
               (log(row.sum[0]) - log(row.sum[1]));
        r.kl = r.kl < 0 ? 0 : r.kl;
#pragma unroll
        for (int m = 0; m < 2; m++) {
            r.best[m] = row.best[m];
            r.logprob[m] = p.targets[i] < 0 ? 0
                                            : (double)p.target[m][i] - row.top[m] -
                                                  log(row.sum[m]);
        }
        out[i] = r;
    }
}

/* --- a chunk of rows --- */

typedef struct {
    const HeadPair *pair;
    int64_t         n_rows, chunk;   // of all rows, at a time
    Pairs           device;          // of a chunk
    const int32_t  *device_targets;  // [n_rows]
    float          *logits[2];       // [chunk, spans at a time]
    PairRow        *out;             // [n_rows] device
} PairCall;

static Status pair_blocks(Backend *be, const PairCall *c, const Pairs *p, int64_t first,
                          int64_t rows)
{
    CudaInput in[2];
    int64_t   V = c->pair->head[0]->n, step = logits_spans(c->chunk);
    for (int i = 0; i < 2; i++) {
        int64_t K = c->pair->head[i]->k;
        Tensor  x = tensor_2d(DTYPE_F32, (float *)c->pair->x[i]->data + first * K, rows, K);
        TRY(cuda_input(be, &in[i], &x, c->pair->head[i]));
    }
    for (int64_t span = 0; span < p->n_spans; span += step) {
        int64_t     word = span * LOGITS_SPAN, n = i64_min(step * LOGITS_SPAN, V - word);
        LogitsBlock a = {c->logits[0], n, span}, b = {c->logits[1], n, span};
        for (int i = 0; i < 2; i++)
            TRY(cuda_linear_block(be, c->logits[i], &in[i], word, n));
        dim3 grid((unsigned)rows, (unsigned)ceil_div(n, LOGITS_SPAN));
        pair_kernel<<<grid, BLOCK, 0, cuda_state(be)->stream>>>(*p, a, b);
        TRY(cuda_launched("divergence"));
    }
    return OK;
}

static Status pair_chunk(Backend *be, const PairCall *c, int64_t first)
{
    CudaBlock *mark = cuda_scratch_mark(be);
    int64_t    n = i64_min(c->chunk, c->n_rows - first);
    Pairs      p = c->device;
    p.targets = c->device_targets + first;
    TRY(pair_blocks(be, c, &p, first, n));
    pair_end_kernel<<<grid_for(n), BLOCK, 0, cuda_state(be)->stream>>>(c->out + first, p, n);
    cuda_scratch_rewind(be, mark);
    return cuda_launched("end of divergence");
}

/* --- the whole --- */

static Status pair_scratch(Backend *be, PairCall *c)
{
    void   *found, *out, *targets;
    size_t  rows = (size_t)c->n_rows, chunk = (size_t)c->chunk;
    int64_t V = c->pair->head[0]->n, most = i64_min(V, logits_spans(c->chunk) * LOGITS_SPAN);
    c->device.n_spans = ceil_div(V, LOGITS_SPAN);
    TRY(cuda_scratch(be, &found, chunk * (size_t)c->device.n_spans * sizeof(PairSpan)));
    TRY(cuda_scratch(be, &out, rows * sizeof(PairRow)));
    TRY(cuda_sent(be, &targets, c->pair->targets, rows * sizeof(int32_t)));
    for (int i = 0; i < 2; i++) {
        void *logits, *target;
        TRY(cuda_scratch(be, &logits, chunk * (size_t)most * sizeof(float)));
        TRY(cuda_scratch(be, &target, chunk * sizeof(float)));
        c->logits[i] = (float *)logits;
        c->device.target[i] = (float *)target;
    }
    c->device.found = (PairSpan *)found;
    c->out = (PairRow *)out;
    c->device_targets = (const int32_t *)targets;
    return OK;
}

static Status pair_rows(Backend *be, PairCall *c)
{
    const HeadPair *p = c->pair;
    PairRow        *out;
    ARENA_NEW(out, &be->arena, c->n_rows);
    c->chunk = i64_min(c->n_rows, LOGITS_ROWS);
    for (int i = 0; i < 2; i++)
        c->chunk = i64_min(c->chunk, cuda_linear_rows(p->head[i], LOGITS_SPAN));
    TRY(pair_scratch(be, c));
    for (int64_t first = 0; first < c->n_rows; first += c->chunk)
        TRY(pair_chunk(be, c, first));
    TRY(cuda_fetch(be, out, c->out, (size_t)c->n_rows * sizeof *out));
    for (int64_t t = 0; t < c->n_rows; t++) {
        p->kl[t] = out[t].kl;
        for (int i = 0; i < 2; i++) {
            p->logprob[i][t] = out[t].logprob[i];
            p->best[i][t] = out[t].best[i];
        }
    }
    return OK;
}

Status cuda_divergence(Backend *be, const HeadPair *p)
{
    PairCall c = {};
    TRY(cuda_begin(be, NULL));
    CUDA_TRY(cudaDeviceSynchronize());  // x[1] may come from another backend's stream
    c.pair = p;
    c.n_rows = p->x[0]->shape[0];
    ArenaMark mark = arena_mark(&be->arena);
    Status    s = pair_rows(be, &c);
    arena_rewind(&be->arena, mark);
    return s;
}
