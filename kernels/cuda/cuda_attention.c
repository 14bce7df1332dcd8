/* cuda_attention.c - causal attention, plain or differential: one call.
 * out       backend.h, Attention
 * shapes    any T, S >= T, d, dv; sequences in a batch share nothing
 * cost      the tiles' products (cuda_attn_f32.cu, cuda_attn_bf16.cu), twice those of q and k
 *           where logits are quantized; memory linear in T: one AttnSoftmax and one Moments a
 *           row where wanted
 * sums      no figure depends on the batch or on how queries fall into tiles
 * NaN       stays where it can be seen
 * test      tests/cuda/test_cuda_attention*.c */
#include "kernels/cuda/cuda_attention.h"

#include <stdlib.h>

#include "kernels/size.h"

static const int32_t *key_start(const Attention *a)
{
    return a->key_start ? a->key_start : a->batch.start;
}

static int64_t n_queries(const Attention *a, int64_t b)
{
    return a->batch.start[b + 1] - a->batch.start[b];
}

static int64_t n_keys(const Attention *a, int64_t b)
{
    return key_start(a)[b + 1] - key_start(a)[b];
}

/* --- tiles --- */

/* The longest first; of equals the first first. */
static int by_keys(const void *a, const void *b)
{
    const AttnTile *x = a, *y = b;
    int32_t nx = x->position + x->n_rows, ny = y->position + y->n_rows;
    return nx != ny ? (nx < ny) - (nx > ny) : (x->row > y->row) - (x->row < y->row);
}

static int64_t cut_tiles(const Attention *a, int32_t n, AttnTile *tiles)
{
    int64_t count = 0;
    for (int64_t b = 0; b < a->batch.n_sequences; b++)
        for (int64_t i = 0, T = n_queries(a, b); i < T; i += n, count++)
            if (tiles)
                tiles[count] = (AttnTile){.sequence = (int32_t)b,
                                          .row = (int32_t)(a->batch.start[b] + i),
                                          .n_rows = (int32_t)i64_min(n, T - i),
                                          .position = (int32_t)(n_keys(a, b) - T + i)};
    return count;
}

static Status send_tiles(Backend *be, const Attention *a, int32_t n, AttnTile **tiles,
                         int64_t n_tiles)
{
    AttnTile *host;
    ARENA_NEW(host, &be->arena, n_tiles);
    cut_tiles(a, n, host);
    qsort(host, (size_t)n_tiles, sizeof *host, by_keys);
    return cuda_sent(be, (void **)tiles, host, (size_t)n_tiles * sizeof *host);
}

Status cuda_attn_tiles(Backend *be, const Attention *a, int32_t n, AttnTile **tiles,
                       int64_t *n_tiles)
{
    ArenaMark mark = arena_mark(&be->arena);
    *n_tiles = cut_tiles(a, n, NULL);
    Status s = send_tiles(be, a, n, tiles, *n_tiles);
    arena_rewind(&be->arena, mark);
    return s;
}

/* --- the call --- */

static AttnCall shape_of(const Attention *a)
{
    bool    noisy = a->n_maps == 2;
    int64_t B = a->batch.n_sequences, longest = 0;
    for (int64_t b = 0; b < B; b++)
        longest = i64_max(longest, n_keys(a, b));
    AttnCall c = {.n_queries = a->batch.start[B], .n_keys = key_start(a)[B],
                  .n_sequences = (int32_t)B, .longest = (int32_t)longest,
                  .reach = (int32_t)(a->reach ? i64_min(a->reach, longest) : longest),
                  .n_heads = (int32_t)a->n_heads, .n_groups = (int32_t)a->n_groups,
                  .n_maps = (int32_t)a->n_maps, .d = (int32_t)a->head_dim,
                  .dv = (int32_t)(a->value_dim ? a->value_dim : a->head_dim * a->n_maps),
                  .scale = a->scale, .lambda = a->lambda, .norm_eps = a->norm_eps,
                  .out_scale = a->out_scale, .lambda_rows = a->lambda_rows,
                  .norm_weight = a->norm_eps >= 0 ? a->norm_weight : NULL,
                  .code_limit = (float)((1 << (a->logit_bits - 1)) - 1)};
    c.n_signals = noisy ? (int32_t)i64_max(a->n_signals, 1) : 1;
    c.n_blocks = c.n_heads / c.n_signals;
    c.n_rows = c.n_signals + noisy;
    c.n_key_maps = a->shared_keys ? 1 : c.n_maps;
    return c;
}

/* Memory of `each` bytes for every row of logits, which tiles fill. */
static Status for_rows(Backend *be, const AttnCall *c, void **out, size_t each)
{
    size_t rows, bytes;
    if (!size_mul((size_t)c->n_queries, (size_t)c->n_blocks * (size_t)c->n_rows, &rows) ||
        !size_mul(rows, each, &bytes))
        FAIL(ERR_MEMORY, "attention: statistics of %lld queries do not fit memory",
             (long long)c->n_queries);
    return cuda_scratch(be, out, bytes);
}

static Status zeros(Backend *be, void **out, size_t bytes)
{
    TRY(cuda_scratch(be, out, bytes));
    return cuda_zero(be, *out, bytes);
}

static Status make_room(Backend *be, const Attention *a, AttnCall *c)
{
    size_t maps = (size_t)c->n_maps, starts = ((size_t)c->n_sequences + 1) * sizeof(int32_t);
    TRY(cuda_sent(be, (void **)&c->start, a->batch.start, starts));
    TRY(cuda_sent(be, (void **)&c->key_start, key_start(a), starts));
    if (a->logit_bits < 16)
        TRY(for_rows(be, c, (void **)&c->row_scale, sizeof *c->row_scale));
    if (a->shares || a->window)
        TRY(for_rows(be, c, (void **)&c->softmax, sizeof *c->softmax));
    if (!a->record)
        return OK;
    TRY(for_rows(be, c, (void **)&c->moments, sizeof *c->moments));
    TRY(for_rows(be, c, (void **)&c->row_absmax, sizeof *c->row_absmax));
    TRY(zeros(be, (void **)&c->hist, maps * HIST_BINS * sizeof *c->hist));
    return zeros(be, (void **)&c->key_absmax,
                 maps * (size_t)c->longest * sizeof *c->key_absmax);
}

Status cuda_attention(Backend *be, Tensor *out, const Tensor *q, const Tensor *k,
                      const Tensor *v, const Attention *a)
{
    bool      bf16 = a->dtype == DTYPE_BF16;
    AttnRun  *run = bf16 ? cuda_attn_bf16 : cuda_attn_f32;
    AttnRows *rows = bf16 ? cuda_attn_rows_bf16 : cuda_attn_rows_f32;
    AttnCall  c = shape_of(a);
    TRY(cuda_begin(be, out));
    if (c.n_queries == 0)
        return OK;
    c.q = q->data, c.k = k->data, c.v = v->data, c.out = out->data;
    TRY(make_room(be, a, &c));
    if (c.row_scale) {
        TRY(run(be, a, &c, true));
        TRY(cuda_attn_scales(be, a, &c));
    }
    TRY(run(be, a, &c, false));
    if (a->record)
        TRY(cuda_attn_record(be, a, &c, rows));
    return a->shares || a->window ? cuda_attn_shares(be, a, &c, rows) : OK;
}
