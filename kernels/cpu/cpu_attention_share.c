/* cpu_attention_share.c - attention weights of chosen rows, a second time.
 * figures   ShareRecord of every SHARE_STRIDE-th position; MapWindow, whole
 * cost      the logits and weights of those rows again; no buffer of length S
 * sums      weights exp(x - top) / sum with top and sum of the first pass, added
 *           in double in order of keys; rows in order of (sequence, query)
 * NaN       makes the row's figures NaN
 * test      tests/kernels/test_attention_share.c */
#include <math.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/size.h"

/* A row on its second pass. */
typedef struct {
    const AttnTile *tile;
    int64_t         i, position;   // query of the tile, place in the sequence
    double          per_sum[2];    // 1 / sum of each map
    double          top_log[2];    // top + log(sum): -log weight = top_log - x
    double          row_sum;       // of A1 - lambda A2
    Span            span;
    ShareRecord     share;
} Row;

static void add_weight(Row *row, const AttnCall *c, int64_t key, const float *const *x,
                       const float (*p)[TILE_KEYS], int64_t j)
{
    ShareRecord *sh = &row->share;
    bool in_span = key >= row->span.first && key < row->span.end;
    double a[2] = {0, 0};
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        a[m] = (double)p[m][j] * row->per_sum[m];
        if (p[m][j] != 0)  // 0 log 0 is 0; NaN goes on
            sh->entropy[m] += a[m] * (row->top_log[m] - (double)x[m][j]);
        if (key == 0)
            sh->first[m] = a[m];
        if (in_span)
            sh->span[m] += a[m];
    }
    double taken = c->a->n_maps == 2 ? (double)c->a->lambda * a[1] : 0;
    double diff = a[0] - taken;
    row->row_sum += diff;
    sh->diff_abs += fabs(diff);
    sh->cancelled += isnan(diff) ? diff : taken < a[0] ? taken : a[0];
    sh->negative += diff < 0;
    if (key == 0)
        sh->diff_first = diff;
    if (in_span)
        sh->diff_span += diff;
}

static void fill_window(const Row *row, const AttnCall *c, int64_t key,
                        const float (*p)[TILE_KEYS], int64_t n)
{
    const MapWindow *w = c->a->window;
    int64_t M = c->a->n_maps, S = w->n_positions, h = row->tile->head;
    for (int64_t j = 0; j < i64_min(n, S - key); j++) {
        double a[2] = {0, 0};
        for (int64_t m = 0; m < M; m++) {
            a[m] = (double)p[m][j] * row->per_sum[m];
            if (w->maps)
                w->maps[((h * M + m) * S + row->position) * S + key + j] = (float)a[m];
        }
        double taken = M == 2 ? (double)c->a->lambda * a[1] : 0;
        if (w->diff)
            w->diff[(h * S + row->position) * S + key + j] = (float)(a[0] - taken);
    }
}

static bool in_window(const AttnCall *c, const AttnTile *t, int64_t position)
{
    const MapWindow *w = c->a->window;
    return w && w->sequence == t->sequence && position < w->n_positions;
}

static bool is_sampled(const AttnCall *c, int64_t position)
{
    return c->row_shares && position % SHARE_STRIDE == SHARE_STRIDE - 1;
}

/* The row's keys key .. key + n: logits as in the first pass, then weights. */
static void walk_keys(Row *row, const AttnCall *c, AttnScratch *s, int64_t key, int64_t n)
{
    const AttnTile *t = row->tile;
    float p[2][TILE_KEYS];
    const float *x[2] = {0};
    attn_logits(c, t, s, row->i, 1, key);
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        int64_t r = row->i * c->a->n_maps + m;
        float *logits = s->x + r * TILE_KEYS;
        if (c->row_scale)
            c->isa->quantize(logits, n, c->row_scale[call_row(c, t, row->i, m)],
                             attn_code_limit(c->a->logit_bits));
        c->isa->weights(p[m], logits, n, s->softmax[r].top);
        x[m] = logits;
    }
    if (is_sampled(c, row->position))
        for (int64_t j = 0; j < n; j++)
            add_weight(row, c, key + j, x, (const float(*)[TILE_KEYS])p, j);
    if (in_window(c, t, row->position))
        fill_window(row, c, key, (const float(*)[TILE_KEYS])p, n);
}

static void close_share(Row *row, const AttnCall *c)
{
    const AttnTile *t = row->tile;
    ShareRecord *sh = &row->share;
    int64_t b = t->sequence, first = t->position - (t->row - c->a->batch.start[b]);
    double rest = c->a->n_maps == 2 ? (double)c->a->lambda : 0;
    sh->rows = 1;
    sh->weights = row->position + 1;
    sh->span_rows = row->span.end > row->span.first;
    sh->row_sum_error = fabs(row->row_sum - (1 - rest));
    int64_t sample = c->sample_start[b] + row->position / SHARE_STRIDE - first / SHARE_STRIDE;
    c->row_shares[sample * c->a->n_heads + t->head] = *sh;
}

static void second_row(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t i)
{
    Row row = {.tile = t, .i = i, .position = t->position + i};
    int64_t end = row.position + 1;
    if (c->a->spans && c->a->spans[t->sequence].end <= row.position)
        row.span = c->a->spans[t->sequence];
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        const SoftmaxRow *sm = &s->softmax[i * c->a->n_maps + m];
        row.per_sum[m] = 1 / sm->sum;
        row.top_log[m] = (double)sm->top + log(sm->sum);
    }
    for (int64_t key = 0; key < end; key += TILE_KEYS)
        walk_keys(&row, c, s, key, i64_min(end - key, TILE_KEYS));
    if (is_sampled(c, row.position))
        close_share(&row, c);
}

void attn_second_pass(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    for (int64_t i = 0; i < t->n_rows; i++)
        if (is_sampled(c, t->position + i) || in_window(c, t, t->position + i))
            second_row(c, t, s, i);
}

void attn_share_merge(const AttnCall *c)
{
    int64_t H = c->a->n_heads;
    int64_t n = c->sample_start[c->a->batch.n_sequences] * H;
    for (int64_t i = 0; i < n; i++)
        share_record_merge(&c->a->shares[i % H], &c->row_shares[i]);
}
