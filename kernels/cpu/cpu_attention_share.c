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
    int64_t     i, position;   // query of the tile, place in the sequence
    double      per_sum[2];    // 1 / sum of each map
    double      top_log[2];    // top + log(sum): -log weight = top_log - x
    double      row_sum;       // of A1 - lambda A2
    Span        span;
    ShareRecord share;
} ShareRow;

/* Some keys of a row: logits and weights of both maps, and what is left. */
typedef struct {
    int64_t      key, n;
    const float *x[2];
    double       weight[2][TILE_KEYS];
    double       diff[TILE_KEYS];
} ShareKeys;

/* 0 log 0 is 0; a NaN goes on. */
static double entropy(const double *weight, const float *x, double top_log, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += weight[j] != 0 ? weight[j] * (top_log - (double)x[j]) : 0;
    return sum;
}

/* What is left of map 1 after map 2, and what was taken: min(A1, lambda A2). */
static void add_diff(ShareRow *row, const ShareKeys *k)
{
    ShareRecord *sh = &row->share;
    double sum = 0, abs = 0, taken = 0;
    int64_t negative = 0;
    for (int64_t j = 0; j < k->n; j++) {
        double diff = k->diff[j], a = k->weight[0][j];
        sum += diff;
        abs += fabs(diff);
        taken += diff < 0 ? a : a - diff;
        negative += diff < 0;
    }
    row->row_sum += sum;
    sh->diff_abs += abs;
    sh->cancelled += taken;
    sh->negative += negative;
}

static double sum_between(const double *x, int64_t from, int64_t to)
{
    double sum = 0;
    for (int64_t j = from; j < to; j++)
        sum += x[j];
    return sum;
}

static void add_share(ShareRow *row, const ShareKeys *k, int64_t n_maps)
{
    ShareRecord *sh = &row->share;
    int64_t from = i64_max(row->span.first - k->key, 0);
    int64_t to = i64_min(row->span.end - k->key, k->n);
    add_diff(row, k);
    sh->diff_span += sum_between(k->diff, from, to);
    if (k->key == 0)
        sh->diff_first = k->diff[0];
    for (int64_t m = 0; m < n_maps; m++) {
        sh->entropy[m] += entropy(k->weight[m], k->x[m], row->top_log[m], k->n);
        sh->span[m] += sum_between(k->weight[m], from, to);
        if (k->key == 0)
            sh->first[m] = k->weight[m][0];
    }
}

static void fill_window(const AttnCall *c, const AttnTile *t, const ShareRow *row,
                        const ShareKeys *k)
{
    const MapWindow *w = c->a->window;
    int64_t M = c->a->n_maps, S = w->n_positions;
    int64_t n = i64_min(k->n, S - k->key);
    for (int64_t m = 0; w->maps && m < M; m++) {
        float *to = w->maps + ((t->head * M + m) * S + row->position) * S + k->key;
        for (int64_t j = 0; j < n; j++)
            to[j] = (float)k->weight[m][j];
    }
    if (w->diff) {
        float *to = w->diff + (t->head * S + row->position) * S + k->key;
        for (int64_t j = 0; j < n; j++)
            to[j] = (float)k->diff[j];
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

/* Logits of the row's next keys, as in the first pass, to weights. */
static void weigh_keys(const AttnCall *c, const AttnTile *t, AttnScratch *s,
                       const ShareRow *row, ShareKeys *k)
{
    float p[TILE_KEYS];
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        int64_t r = row->i * c->a->n_maps + m;
        float *x = s->x + r * TILE_KEYS;
        if (c->row_scale)
            c->isa->quantize(x, k->n, c->row_scale[call_row(c, t, row->i, m)],
                             attn_code_limit(c->a->logit_bits));
        c->isa->weights(p, x, k->n, s->softmax[r].top);
        k->x[m] = x;
        for (int64_t j = 0; j < k->n; j++)
            k->weight[m][j] = (double)p[j] * row->per_sum[m];
    }
    for (int64_t j = 0; j < k->n; j++)
        k->diff[j] = k->weight[0][j];
    for (int64_t j = 0; c->a->n_maps == 2 && j < k->n; j++)
        k->diff[j] -= (double)c->a->lambda * k->weight[1][j];
}

static void row_keys(const AttnCall *c, const AttnTile *t, AttnScratch *s, ShareRow *row,
                     int64_t key)
{
    ShareKeys k;
    k.key = key;
    k.n = i64_min(tile_allowed(t, row->i, key), TILE_KEYS);
    if (k.n <= 0)
        return;
    weigh_keys(c, t, s, row, &k);
    if (is_sampled(c, row->position))
        add_share(row, &k, c->a->n_maps);
    if (in_window(c, t, row->position))
        fill_window(c, t, row, &k);
}

static void open_row(ShareRow *row, const AttnCall *c, const AttnTile *t,
                     const AttnScratch *s, int64_t i)
{
    *row = (ShareRow){.i = i, .position = t->position + i};
    if (c->a->spans && c->a->spans[t->sequence].end <= row->position)
        row->span = c->a->spans[t->sequence];
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        const SoftmaxRow *sm = &s->softmax[i * c->a->n_maps + m];
        row->per_sum[m] = 1 / sm->sum;
        row->top_log[m] = (double)sm->top + log(sm->sum);
    }
}

static void close_row(ShareRow *row, const AttnCall *c, const AttnTile *t)
{
    ShareRecord *sh = &row->share;
    int64_t b = t->sequence, first = t->position - (t->row - c->a->batch.start[b]);
    double lambda = c->a->n_maps == 2 ? (double)c->a->lambda : 0;
    sh->rows = 1;
    sh->weights = row->position + 1;
    sh->span_rows = row->span.end > row->span.first;
    sh->row_sum_error = fabs(row->row_sum - (1 - lambda));
    int64_t sample = c->sample_start[b] + row->position / SHARE_STRIDE - first / SHARE_STRIDE;
    c->row_shares[sample * c->a->n_heads + t->head] = *sh;
}

static void walk_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s, TileRows rows)
{
    ShareRow row[TILE_ROWS];
    int64_t end = tile_allowed(t, rows.first + (rows.n - 1) * rows.step, 0);
    for (int64_t i = 0; i < rows.n; i++)
        open_row(&row[i], c, t, s, rows.first + i * rows.step);
    for (int64_t key = 0; key < end; key += TILE_KEYS) {
        attn_logits(c, t, s, rows, key);
        for (int64_t i = 0; i < rows.n; i++)
            row_keys(c, t, s, &row[i], key);
    }
    for (int64_t i = 0; i < rows.n; i++)
        if (is_sampled(c, row[i].position))
            close_row(&row[i], c, t);
}

void attn_second_pass(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t first = SHARE_STRIDE - 1 - t->position % SHARE_STRIDE;
    if (in_window(c, t, t->position))
        walk_rows(c, t, s, (TileRows){0, t->n_rows, 1});
    else if (c->row_shares && first < t->n_rows)
        walk_rows(c, t, s, (TileRows){first, ceil_div(t->n_rows - first, SHARE_STRIDE),
                                      SHARE_STRIDE});
}

void attn_share_merge(const AttnCall *c)
{
    int64_t H = c->a->n_heads;
    int64_t n = c->sample_start[c->a->batch.n_sequences] * H;
    for (int64_t i = 0; i < n; i++)
        share_record_merge(&c->a->shares[i % H], &c->row_shares[i]);
}
