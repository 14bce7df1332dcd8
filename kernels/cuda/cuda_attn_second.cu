/* cuda_attn_second.cu - attention weights of chosen rows, a second time.
 * figures   ShareRecord of the rows asked for, of each head with its noise map; MapWindow,
 *           whole. Out of reach weights are 0
 * shapes    any; rows in pieces whose logits fit in PIECE bytes, or in a quarter of what a
 *           limit on device memory leaves
 * cost      the logits of those rows again; then 8 bytes, an exp and about 15 operations in
 *           double a key and head: bound by doubles on a GPU that has few, else by memory
 * launch    a block of 256 a query and head
 * sums      weights exp(x - top) / sum with top and sum of the first pass, in double: keys
 *           strided over 256 threads, then a tree; rows in order of (sequence, query) on the
 *           host, so that shares do not depend on how sequences are batched
 * NaN       makes the row's figures NaN
 * waits     one, and one a piece that has rows of the window
 * test      tests/cuda/test_cuda_attn_share.c */
#include <float.h>
#include <string.h>

#include "kernels/cuda/cuda_attn.cuh"

enum { PIECE = 64 << 20, MOST_QUERIES = 1 << 14 };

/* A query whose weights are wanted. */
typedef struct {
    int32_t sequence, row, position;
    int32_t sample;        // number among those with shares, -1: none
    int32_t shown;         // number among those in the window, -1: none
    Span    span;          // marked keys before it; first == end: none
} ShareQuery;

/* What a launch works on. */
typedef struct {
    const ShareQuery *queries;
    const float      *x;             // [queries,B,R,longest] logits
    ShareRecord      *shares;        // [samples,H] of all
    float            *shown;         // [shown,H,M+1,n_positions]: maps, then their difference
    int32_t           first_shown;   // number of the first in `shown`
    int32_t           n_positions;   // of the window
} SharePiece;

/* --- on the device --- */

/* rows [n,B*R]: all rows of n queries. */
static __global__ void spell_rows_kernel(AttnRow *rows, const ShareQuery *queries, int64_t n,
                                         AttnCall c)
{
    int32_t maps = c.n_blocks * c.n_rows;
    for (int64_t i = grid_index(); i < n * maps; i += grid_size()) {
        const ShareQuery *q = &queries[i / maps];
        int32_t j = (int32_t)(i % maps);
        AttnRow row = {q->sequence, q->row, q->position, j / c.n_rows, j % c.n_rows};
        rows[i] = row;
    }
}

/* One map of a row: the weight of a key is exp(x - top) * per_sum. */
typedef struct {
    const float *x;
    float        top, scale;
    double       per_sum, top_log;   // -log(weight) = top_log - x
} ShareMap;

static __device__ ShareMap share_map(const AttnCall &c, const SharePiece &p, int64_t i,
                                     int32_t head, int32_t m)
{
    int32_t block = head / c.n_signals, r = m == 0 ? head % c.n_signals : c.n_signals;
    int64_t at = attn_row(c, p.queries[i].row, block, r);
    AttnSoftmax s = c.softmax[at];
    ShareMap map;
    map.x = p.x + attn_row(c, (int32_t)i, block, r) * c.longest;
    map.top = attn_safe_top(s.top);
    map.scale = c.row_scale ? c.row_scale[at] : 0;
    map.per_sum = 1 / s.sum;
    map.top_log = (double)s.top + log(s.sum);
    return map;
}

/* The weight of key j, and what it adds to the entropy: -inf becomes finite, so that 0 log 0
 * is 0. */
static __device__ double share_weight(const AttnCall &c, const ShareMap &map, int32_t j,
                                      double *entropy)
{
    float x = map.x[j];
    if (c.row_scale)
        x = attn_quantized(x, map.scale, c.code_limit);
    double a = __dmul_rn((double)expf(x - map.top), map.per_sum);
    *entropy = a * (map.top_log - (double)(x < -FLT_MAX ? -FLT_MAX : x));
    return a;
}

/* Sums over the keys of a row. */
enum { WEIGHT, ENTROPY = WEIGHT + 2, IN_SPAN = ENTROPY + 2, ABS = IN_SPAN + 2, ABS_IN_SPAN,
       NEGATIVE, N_SUMS };

/* v of all threads summed up in `total`, after a barrier. */
static __device__ void sum_all(const double (&v)[N_SUMS], double (*part)[BLOCK_WARPS],
                               double *total)
{
#pragma unroll
    for (int i = 0; i < N_SUMS; i++) {
        double sum = warp_sum(v[i]);
        if (threadIdx.x % WARP == 0)
            part[i][threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if (threadIdx.x < N_SUMS) {
        double sum = 0;
        for (int i = 0; i < BLOCK_WARPS; i++)
            sum += part[threadIdx.x][i];
        total[threadIdx.x] = sum;
    }
}

/* min(a, b) = (a + b - |a - b|) / 2 gives the mass that map 2 takes. */
static __device__ ShareRecord close_row(const AttnCall &c, const ShareQuery &q,
                                        const double *sum, const double (&first)[3],
                                        double lambda)
{
    ShareRecord sh;
    double taken = __dmul_rn(lambda, sum[WEIGHT + 1]);
    sh.rows = 1;
    sh.weights = min(q.position + 1, c.reach);
    sh.span_rows = q.span.end > q.span.first;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        sh.entropy[m] = sum[ENTROPY + m];
        sh.first[m] = first[m];
        sh.span[m] = sum[IN_SPAN + m];
    }
    sh.diff_first = first[0] - lambda * first[1];
    sh.diff_span = sh.span[0] - lambda * sh.span[1];
    sh.diff_abs = sum[ABS];
    sh.diff_abs_first = first[2];
    sh.diff_abs_span = sum[ABS_IN_SPAN];
    sh.row_sum_error = fabs(sum[WEIGHT] - taken - (1 - lambda));
    sh.cancelled = (sum[WEIGHT] + taken - sum[ABS]) / 2;
    sh.negative = (int64_t)sum[NEGATIVE];
    return sh;
}

/* Columns of the window that the row does not see. */
template <int M>
static __device__ void clear_row(float *to, int32_t n_positions, AttnSeen seen)
{
    for (int32_t j = threadIdx.x; j < n_positions; j += BLOCK)
        if (j < seen.from || j >= seen.end)
#pragma unroll
            for (int m = 0; m <= M; m++)
                to[(int64_t)m * n_positions + j] = 0;
}

/* Block x: query x / H of the piece, head x % H. */
template <int M>
static __global__ void __launch_bounds__(BLOCK) shares_kernel(AttnCall c, SharePiece p)
{
    __shared__ ShareMap shared[M];
    __shared__ double   part[N_SUMS][BLOCK_WARPS], total[N_SUMS];
    int64_t    i = blockIdx.x / c.n_heads;
    int32_t    head = (int32_t)(blockIdx.x % c.n_heads);
    ShareQuery q = p.queries[i];
    AttnSeen   seen = attn_seen(c, q.position);
    double     lambda = attn_lambda(c, q.row, head);
    double     v[N_SUMS] = {}, first[3] = {};
    float     *to = NULL;
    if (threadIdx.x < M)
        shared[threadIdx.x] = share_map(c, p, i, head, threadIdx.x);
    __syncthreads();
    if (q.shown >= 0) {
        to = p.shown + ((int64_t)(q.shown - p.first_shown) * c.n_heads + head) * (M + 1) *
                       p.n_positions;
        clear_row<M>(to, p.n_positions, seen);
    }
    for (int32_t j = seen.from + threadIdx.x; j < seen.end; j += BLOCK) {
        bool   marked = j >= q.span.first && j < q.span.end;
        double a[M], entropy;
#pragma unroll
        for (int m = 0; m < M; m++) {
            a[m] = share_weight(c, shared[m], j, &entropy);
            v[WEIGHT + m] += a[m];
            v[ENTROPY + m] += entropy;
            v[IN_SPAN + m] += marked ? a[m] : 0;
        }
        double diff = M == 2 ? __dsub_rn(a[0], __dmul_rn(a[M - 1], lambda)) : a[0];
        v[ABS] += fabs(diff);
        v[ABS_IN_SPAN] += marked ? fabs(diff) : 0;
        v[NEGATIVE] += diff < 0;
        if (j == 0) {  // of thread 0
            first[0] = a[0];
            first[1] = M == 2 ? a[M - 1] : 0;
            first[2] = fabs(diff);
        }
        if (to) {
#pragma unroll
            for (int m = 0; m < M; m++)
                to[(int64_t)m * p.n_positions + j] = (float)a[m];
            to[(int64_t)M * p.n_positions + j] = (float)diff;
        }
    }
    sum_all(v, part, total);
    __syncthreads();
    if (threadIdx.x == 0 && q.sample >= 0)
        p.shares[(int64_t)q.sample * c.n_heads + head] = close_row(c, q, total, first, lambda);
}

typedef void SharesKernel(AttnCall c, SharePiece p);

/* --- which rows --- */

/* n items of the host's that are filled at once. */
template <class T> static Status host_room(Backend *be, T **out, int64_t n)
{
    *out = (T *)arena_raw(&be->arena, n, sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: %lld items of %zu bytes", (long long)n, sizeof **out);
    return OK;
}

typedef struct {
    ShareQuery *at;
    int64_t     n;
    int32_t     n_samples, n_shown;
} ShareQueries;

static ShareQuery query_at(const Attention *a, ShareQueries *all, int32_t b, int32_t t,
                           int32_t position)
{
    const MapWindow *w = a->window;
    ShareQuery q = {b, t, position, -1, -1, {0, 0}};
    bool every = position % SHARE_STRIDE == SHARE_STRIDE - 1;
    if (a->shares && (a->share_rows ? a->share_rows[t] != 0 : every))
        q.sample = all->n_samples++;
    if (w && w->sequence == b && position < w->n_positions)
        q.shown = all->n_shown++;
    if (a->spans && a->spans[b].end <= position)
        q.span = a->spans[b];
    return q;
}

static Status find_queries(Backend *be, const Attention *a, ShareQueries *all)
{
    const int32_t *start = a->batch.start, *keys = a->key_start ? a->key_start : start;
    TRY(host_room(be, &all->at, start[a->batch.n_sequences]));
    for (int32_t b = 0; b < a->batch.n_sequences; b++)
        for (int32_t t = start[b]; t < start[b + 1]; t++) {
            ShareQuery q = query_at(a, all, b, t, keys[b + 1] - keys[b] - start[b + 1] + t);
            if (q.sample >= 0 || q.shown >= 0)
                all->at[all->n++] = q;
        }
    return OK;
}

/* --- on the host --- */

/* Rows before the queries and columns past the keys stay 0. */
static void clear_window(const Attention *a)
{
    const MapWindow *w = a->window;
    size_t map = (size_t)(a->n_heads * w->n_positions * w->n_positions) * sizeof(float);
    if (w->maps)
        memset(w->maps, 0, map * (size_t)a->n_maps);
    if (w->diff)
        memset(w->diff, 0, map);
}

/* from [H,M+1,S] to row `position` of all maps. */
static void fill_window(const Attention *a, int32_t position, const float *from)
{
    const MapWindow *w = a->window;
    int64_t S = w->n_positions, M = a->n_maps;
    size_t  row = (size_t)S * sizeof *from;
    for (int64_t h = 0; h < a->n_heads; h++)
        for (int64_t m = 0; m <= M; m++, from += S) {
            if (m < M && w->maps)
                memcpy(w->maps + ((h * M + m) * S + position) * S, from, row);
            if (m == M && w->diff)
                memcpy(w->diff + (h * S + position) * S, from, row);
        }
}

static Status fetch_window(Backend *be, const Attention *a, const ShareQuery *queries,
                           int64_t n, const float *shown, int64_t n_shown)
{
    float    *host;
    int64_t   width = a->n_heads * (a->n_maps + 1) * a->window->n_positions;
    ArenaMark mark = arena_mark(&be->arena);
    TRY(host_room(be, &host, n_shown * width));
    TRY(cuda_fetch(be, host, shown, (size_t)(n_shown * width) * sizeof *host));
    for (int64_t i = 0, at = 0; i < n; i++)
        if (queries[i].shown >= 0)
            fill_window(a, queries[i].position, host + width * at++);
    arena_rewind(&be->arena, mark);
    return OK;
}

/* --- pieces --- */

/* Device memory of all pieces, one after another. */
typedef struct {
    int64_t      step;        // queries of a piece
    ShareQuery  *queries;
    AttnRow     *rows;        // [step,B,R]
    float       *x;           // [step,B,R,longest]
    float       *shown;       // NULL: no window
    ShareRecord *shares;      // [n_samples,H]
} ShareRoom;

/* Bytes for the logits of a piece. */
static int64_t piece_bytes(const CudaState *st)
{
    if (st->limit == SIZE_MAX)
        return PIECE;
    return st->held < st->limit ? i64_min(PIECE, (int64_t)(st->limit - st->held) / 4) : 0;
}

static Status make_room(Backend *be, const Attention *a, const AttnCall *c,
                        const ShareQueries *all, ShareRoom *room)
{
    int64_t maps = (int64_t)c->n_blocks * c->n_rows, shown = 0;
    if (all->n_shown)
        shown = a->n_heads * (a->n_maps + 1) * a->window->n_positions;
    int64_t each = maps * c->longest + shown;
    int64_t fit = piece_bytes(cuda_state(be)) / (int64_t)sizeof(float) / each;
    room->step = i64_min(i64_max(fit, 1), i64_min(all->n, MOST_QUERIES));
    TRY(cuda_sent(be, (void **)&room->queries, all->at, (size_t)all->n * sizeof *all->at));
    TRY(cuda_scratch(be, (void **)&room->rows, (size_t)(room->step * maps) *
                                               sizeof *room->rows));
    TRY(cuda_scratch(be, (void **)&room->x, (size_t)(room->step * maps * c->longest) *
                                            sizeof *room->x));
    if (shown)
        TRY(cuda_scratch(be, (void **)&room->shown, (size_t)(room->step * shown) *
                                                    sizeof *room->shown));
    return cuda_scratch(be, (void **)&room->shares, (size_t)(all->n_samples * a->n_heads) *
                                                    sizeof *room->shares);
}

/* Of the n queries from there on. */
static Status run_piece(Backend *be, const Attention *a, const AttnCall *c, AttnRows *work_out,
                        const ShareRoom *room, const ShareQuery *queries, int64_t first,
                        int64_t n)
{
    cudaStream_t stream = cuda_state(be)->stream;
    int64_t    n_rows = n * c->n_blocks * c->n_rows, n_shown = 0;
    SharePiece p = {room->queries + first, room->x, room->shares, room->shown, 0, 0};
    for (int64_t i = 0; i < n; i++)
        if (queries[i].shown >= 0 && n_shown++ == 0)
            p.first_shown = queries[i].shown;
    if (n_shown)
        p.n_positions = (int32_t)a->window->n_positions;
    spell_rows_kernel<<<grid_for(n_rows), BLOCK, 0, stream>>>(room->rows, p.queries, n, *c);
    TRY(cuda_launched("attention: rows of shares"));
    TRY(work_out(be, a, c, room->rows, n_rows, room->x, c->longest));
    SharesKernel *kernel = c->n_maps == 2 ? shares_kernel<2> : shares_kernel<1>;
    kernel<<<(unsigned)(n * c->n_heads), BLOCK, 0, stream>>>(*c, p);
    TRY(cuda_launched("attention: shares"));
    return n_shown ? fetch_window(be, a, queries, n, room->shown, n_shown) : OK;
}

static Status merge_shares(Backend *be, const Attention *a, const ShareRoom *room, int64_t n)
{
    ShareRecord *rows;
    int64_t      H = a->n_heads;
    if (n == 0)
        return OK;
    TRY(host_room(be, &rows, n * H));
    TRY(cuda_fetch(be, rows, room->shares, (size_t)(n * H) * sizeof *rows));
    for (int64_t i = 0; i < n * H; i++)
        share_record_merge(&a->shares[i % H], &rows[i]);
    return OK;
}

static Status second_pass(Backend *be, const Attention *a, const AttnCall *c,
                          AttnRows *work_out)
{
    ShareQueries all = {};
    ShareRoom    room = {};
    TRY(find_queries(be, a, &all));
    if (all.n == 0)
        return OK;
    TRY(make_room(be, a, c, &all, &room));
    for (int64_t i = 0; i < all.n; i += room.step)
        TRY(run_piece(be, a, c, work_out, &room, all.at + i, i, i64_min(room.step, all.n - i)));
    return merge_shares(be, a, &room, all.n_samples);
}

Status cuda_attn_shares(Backend *be, const Attention *a, const AttnCall *c, AttnRows *rows)
{
    ArenaMark mark = arena_mark(&be->arena);
    if (a->window && a->window->sequence >= 0)
        clear_window(a);
    Status s = second_pass(be, a, c, rows);
    arena_rewind(&be->arena, mark);
    return s;
}
