/* cpu_attention_share.c - attention weights of chosen rows, a second time.
 * figures   ShareRecord of the rows asked for, of each head with its noise map;
 *           MapWindow, whole. Out of reach weights are 0
 * cost      the logits and weights of those rows again; no buffer of length S
 * sums      weights exp(x - top) / sum with top and sum of the first pass, added
 *           in double in order of keys; rows in order of (sequence, query)
 * NaN       makes the row's figures NaN
 * test      tests/kernels/test_attention_share.c */
#include <math.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpufeat.h"

const ShareIsa *share_isa(void)
{
    static const ShareIsa *const OF[N_CPU_ISAS] = {&share_plain, &share_avx2, &share_avx512};
    return OF[cpu_isa()];
}

static double span_mass(const float *p, int64_t from, int64_t to)
{
    double sum = 0;
    for (int64_t j = from; j < to; j++)
        sum += (double)p[j];
    return sum;
}

/* Sum of |A1 - lambda A2| over keys from .. to of the strip. */
static double diff_mass(const ShareStrip *s, int64_t from, int64_t to, int64_t n_maps)
{
    double sum = 0;
    for (int64_t j = from; j < to; j++) {
        double a = (double)s->p[0][j] * s->per_sum[0];
        sum += fabs(n_maps == 2 ? a - (double)s->p[1][j] * s->per_sum[1] * s->lambda : a);
    }
    return sum;
}

static int64_t strip_length(int64_t n)
{
    return ceil_div(n, SHARE_STRIDE) * SHARE_STRIDE;
}

static void add_share(const AttnCall *c, ShareRow *row, int64_t key, int64_t n)
{
    ShareRecord *sh = &row->share;
    int64_t M = c->a->n_maps;
    int64_t from = i64_max(row->span.first - key, 0), to = i64_min(row->span.end - key, n);
    c->share_isa->add(&row->sums, &row->strip, strip_length(n), M);
    sh->diff_abs_span += diff_mass(&row->strip, from, to, M);
    if (key == 0)
        sh->diff_abs_first = diff_mass(&row->strip, 0, 1, M);
    for (int64_t m = 0; m < M; m++) {
        const float *p = row->strip.p[m];
        sh->span[m] += span_mass(p, from, to) * row->strip.per_sum[m];
        if (key == 0)
            sh->first[m] = (double)p[0] * row->strip.per_sum[m];
    }
}

/* No key lies outside: its position is at most the row's. */
static void fill_window(const AttnCall *c, const AttnTile *t, const ShareRow *row,
                        int64_t key, int64_t n)
{
    const MapWindow *w = c->a->window;
    const ShareStrip *s = &row->strip;
    int64_t M = c->a->n_maps, S = w->n_positions, head = t->block * c->n_signals + row->head;
    for (int64_t m = 0; w->maps && m < M; m++) {
        float *to = w->maps + ((head * M + m) * S + row->position) * S + key;
        for (int64_t j = 0; j < n; j++)
            to[j] = (float)((double)s->p[m][j] * s->per_sum[m]);
    }
    for (int64_t j = 0; w->diff && j < n; j++) {
        double a = (double)s->p[0][j] * s->per_sum[0];
        if (M == 2)
            a -= s->lambda * ((double)s->p[1][j] * s->per_sum[1]);
        w->diff[(head * S + row->position) * S + key + j] = (float)a;
    }
}

static bool in_window(const AttnCall *c, const AttnTile *t, int64_t position)
{
    const MapWindow *w = c->a->window;
    return w && w->sequence == t->sequence && position < w->n_positions;
}

/* Are shares of query i of the tile wanted? */
static bool is_sampled(const AttnCall *c, const AttnTile *t, int64_t i)
{
    return c->row_shares && c->sample[t->row + i] >= 0;
}

/* Where map m of a head of the block lies among its rows. */
static int64_t row_of(const AttnCall *c, int64_t head, int64_t m)
{
    return m == 0 ? head : c->n_signals;
}

/* Logits x, as in the first pass, to weights p; both are 0 before k.from and from k.end up
 * to the end of the strip. */
static void weigh_keys(const AttnCall *c, float *p, float *x, TileKeys k, int64_t row,
                       float top)
{
    if (c->row_scale)
        c->isa->quantize(x, k.end, c->row_scale[row], attn_code_limit(c->a->logit_bits));
    c->isa->weights(p, x, k.end, top);
    for (int64_t j = 0; j < k.from; j++)
        p[j] = x[j] = 0;
    for (int64_t j = k.end; j < strip_length(k.end); j++)
        p[j] = x[j] = 0;
}

/* A query of the tile and the keys of all its maps; row [n_signals]. */
static void row_keys(const AttnCall *c, const AttnTile *t, AttnScratch *s, ShareRow *row,
                     int64_t key)
{
    TileKeys k = tile_keys(c, t, row->i, key);
    int64_t first = k.from / SHARE_STRIDE * SHARE_STRIDE, n = k.end - first;
    bool sampled = is_sampled(c, t, row->i), shown = in_window(c, t, row->position);
    if (k.from >= k.end || !(sampled || shown))
        return;
    float *x = s->x + row->i * c->n_rows * TILE_KEYS + first;
    for (int64_t r = 0; r < c->n_rows; r++)
        weigh_keys(c, s->p + r * TILE_KEYS, x + r * TILE_KEYS, (TileKeys){k.from - first, n},
                   call_row(c, t, row->i, r), s->softmax[row->i * c->n_rows + r].top);
    for (int64_t j = 0; j < c->n_signals; j++) {
        for (int64_t m = 0; m < c->a->n_maps; m++) {
            row[j].strip.p[m] = s->p + row_of(c, j, m) * TILE_KEYS;
            row[j].strip.x[m] = x + row_of(c, j, m) * TILE_KEYS;
        }
        if (sampled)
            add_share(c, &row[j], key + first, n);
        if (shown)
            fill_window(c, t, &row[j], key + first, n);
    }
}

static void open_row(ShareRow *row, const AttnCall *c, const AttnTile *t,
                     const AttnScratch *s, int64_t i, int64_t head)
{
    *row = (ShareRow){.i = i, .position = t->position + i, .head = head};
    if (c->a->spans && c->a->spans[t->sequence].end <= row->position)
        row->span = c->a->spans[t->sequence];
    row->strip.lambda = lambda_of(c, t, i, t->block * c->n_signals + head);
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        const SoftmaxRow *sm = &s->softmax[i * c->n_rows + row_of(c, head, m)];
        row->strip.per_sum[m] = 1 / sm->sum;
        row->strip.top_log[m] = (double)sm->top + log(sm->sum);
    }
}

/* min(a, b) = (a + b - |a - b|) / 2 gives the mass that map 2 takes. */
static void close_row(ShareRow *row, const AttnCall *c, const AttnTile *t)
{
    ShareRecord *sh = &row->share;
    const ShareSums *sum = &row->sums;
    double lambda = row->strip.lambda, taken = lambda * sum->weight[1];
    int64_t head = t->block * c->n_signals + row->head;
    for (int m = 0; m < 2; m++)
        sh->entropy[m] = sum->entropy[m];
    sh->rows = 1;
    sh->weights = i64_min(row->position + 1, c->reach);
    sh->span_rows = row->span.end > row->span.first;
    sh->diff_first = sh->first[0] - lambda * sh->first[1];
    sh->diff_span = sh->span[0] - lambda * sh->span[1];
    sh->diff_abs = sum->diff_abs;
    sh->negative = sum->negative;
    sh->cancelled = (sum->weight[0] + taken - sum->diff_abs) / 2;
    sh->row_sum_error = fabs(sum->weight[0] - taken - (1 - lambda));
    c->row_shares[c->sample[t->row + row->i] * c->a->n_heads + head] = *sh;
}

static void walk_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s, TileRows rows)
{
    int64_t n = c->n_signals, end = tile_allowed(t, rows.first + (rows.n - 1) * rows.step, 0);
    for (int64_t i = 0; i < rows.n * n; i++)
        open_row(&s->shares[i], c, t, s, rows.first + i / n * rows.step, i % n);
    for (int64_t key = tile_first_key(c, t, rows.first); key < end; key += TILE_KEYS) {
        attn_logits(c, t, s, rows, key);
        for (int64_t i = 0; i < rows.n; i++)
            row_keys(c, t, s, &s->shares[i * n], key);
    }
    for (int64_t i = 0; i < rows.n * n; i++)
        if (is_sampled(c, t, s->shares[i].i))
            close_row(&s->shares[i], c, t);
}

/* From the first to the last sampled query of the tile; n <= 0: none. */
static TileRows sampled_rows(const AttnCall *c, const AttnTile *t)
{
    int64_t first = 0, end = t->n_rows, step = c->a->share_rows ? 1 : SHARE_STRIDE;
    while (first < end && !is_sampled(c, t, first))
        first++;
    while (first < end && !is_sampled(c, t, end - 1))
        end--;
    return (TileRows){first, ceil_div(end - first, step), step};
}

void attn_second_pass(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    TileRows rows = {0, t->n_rows, 1};
    if (!in_window(c, t, t->position))
        rows = sampled_rows(c, t);
    if (rows.n > 0)
        walk_rows(c, t, s, rows);
}

void attn_share_merge(const AttnCall *c)
{
    int64_t H = c->a->n_heads;
    for (int64_t i = 0; i < c->n_samples * H; i++)
        share_record_merge(&c->a->shares[i % H], &c->row_shares[i]);
}
