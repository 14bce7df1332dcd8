/* cpu_attention_share.c - attention weights of chosen rows, a second time.
 * figures   ShareRecord of the rows asked for; MapWindow, whole
 * cost      the logits and weights of those rows again; no buffer of length S
 * sums      weights exp(x - top) / sum with top and sum of the first pass, added
 *           in double in order of keys; rows in order of (sequence, query)
 * NaN       makes the row's figures NaN
 * test      tests/kernels/test_attention_share.c */
#include <math.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpufeat.h"
#include "kernels/size.h"

const ShareIsa *share_isa(void)
{
    static const ShareIsa *const OF[N_CPU_ISAS] = {&share_plain, &share_avx2, &share_avx512};
    return OF[cpu_isa()];
}

/* A row on its second pass. */
typedef struct {
    int64_t     i, position;   // query of the tile, place in the sequence
    ShareStrip  strip;         // p and x change from keys to keys
    ShareSums   sums;
    Span        span;
    ShareRecord share;         // first and span shares so far
} ShareRow;

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
    int64_t M = c->a->n_maps, S = w->n_positions;
    for (int64_t m = 0; w->maps && m < M; m++) {
        float *to = w->maps + ((t->head * M + m) * S + row->position) * S + key;
        for (int64_t j = 0; j < n; j++)
            to[j] = (float)((double)s->p[m][j] * s->per_sum[m]);
    }
    for (int64_t j = 0; w->diff && j < n; j++) {
        double a = (double)s->p[0][j] * s->per_sum[0];
        if (M == 2)
            a -= s->lambda * ((double)s->p[1][j] * s->per_sum[1]);
        w->diff[(t->head * S + row->position) * S + key + j] = (float)a;
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

/* Logits x of n keys, as in the first pass, to weights p; both 0 up to the strip's end. */
static void weigh_keys(const AttnCall *c, float *p, float *x, int64_t n, int64_t row,
                       float top)
{
    if (c->row_scale)
        c->isa->quantize(x, n, c->row_scale[row], attn_code_limit(c->a->logit_bits));
    c->isa->weights(p, x, n, top);
    for (int64_t j = n; j < strip_length(n); j++)
        p[j] = x[j] = 0;
}

static void row_keys(const AttnCall *c, const AttnTile *t, AttnScratch *s, ShareRow *row,
                     int64_t key)
{
    float p[2][TILE_KEYS];
    int64_t n = i64_min(tile_allowed(t, row->i, key), TILE_KEYS);
    bool sampled = is_sampled(c, t, row->i), shown = in_window(c, t, row->position);
    if (n <= 0 || !(sampled || shown))
        return;
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        int64_t r = row->i * c->a->n_maps + m;
        float *x = s->x + r * TILE_KEYS;
        weigh_keys(c, p[m], x, n, call_row(c, t, row->i, m), s->softmax[r].top);
        row->strip.p[m] = p[m];
        row->strip.x[m] = x;
    }
    if (sampled)
        add_share(c, row, key, n);
    if (shown)
        fill_window(c, t, row, key, n);
}

static void open_row(ShareRow *row, const AttnCall *c, const AttnTile *t,
                     const AttnScratch *s, int64_t i)
{
    *row = (ShareRow){.i = i, .position = t->position + i};
    if (c->a->spans && c->a->spans[t->sequence].end <= row->position)
        row->span = c->a->spans[t->sequence];
    row->strip.lambda = c->a->n_maps == 2 ? (double)c->a->lambda : 0;
    for (int64_t m = 0; m < c->a->n_maps; m++) {
        const SoftmaxRow *sm = &s->softmax[i * c->a->n_maps + m];
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
    for (int m = 0; m < 2; m++)
        sh->entropy[m] = sum->entropy[m];
    sh->rows = 1;
    sh->weights = row->position + 1;
    sh->span_rows = row->span.end > row->span.first;
    sh->diff_first = sh->first[0] - lambda * sh->first[1];
    sh->diff_span = sh->span[0] - lambda * sh->span[1];
    sh->diff_abs = sum->diff_abs;
    sh->negative = sum->negative;
    sh->cancelled = (sum->weight[0] + taken - sum->diff_abs) / 2;
    sh->row_sum_error = fabs(sum->weight[0] - taken - (1 - lambda));
    c->row_shares[c->sample[t->row + row->i] * c->a->n_heads + t->head] = *sh;
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
        if (is_sampled(c, t, row[i].i))
            close_row(&row[i], c, t);
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
