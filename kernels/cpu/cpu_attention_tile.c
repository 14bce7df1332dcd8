/* cpu_attention_tile.c - one tile of queries over all its keys.
 * out       = A1 v - lambda A2 v, then the norm of each head (backend.h)
 * shapes    up to TILE_ROWS queries; q gathered, k and v packed
 * cost      2 R (d + dv) flops a query, block of heads and allowed key, in blocks
 *           of GROUP_ROWS x PANEL_KEYS; blocks above the diagonal and out of reach
 *           are skipped. In bf16 by pairs where the processor multiplies these
 * sums      f32, a chain over d a logit and a chain over keys an output, begun
 *           again from a multiple when the running maximum rises; their order
 *           depends on TILE_KEYS, never on TILE_ROWS or the threads
 * NaN       a query's NaN stays in its row, a key's or value's in rows that see it
 * test      tests/kernels/test_attention.c, test_attention_wide.c */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"

void attn_load_queries(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    for (int64_t m = 0; m < c->n_rows; m++)
        for (int64_t i = 0; i < t->n_rows; i++)
            attn_pack_row(c, s->q + (m * TILE_ROWS + i) * c->d_words,
                          c->q + call_row(c, t, i, m) * c->d);
}

static const Word *key_panel(const AttnCall *c, const AttnTile *t, int64_t key, int64_t m)
{
    int64_t p = c->panel_start[t->sequence] + key / PANEL_KEYS;
    int64_t of = c->n_key_maps == 2 ? map_of(c, m) : 0;
    return c->k_panels +
           ((p * c->a->n_groups + t->group) * c->n_key_maps + of) * c->d_words * PANEL_KEYS;
}

/* n <= GROUP_ROWS queries against the keys from their first one's first to their last
 * one's last. */
static void group_logits(const AttnCall *c, const AttnTile *t, AttnScratch *s, TileRows rows,
                         int64_t key)
{
    int64_t R = c->n_rows, last = rows.first + (rows.n - 1) * rows.step;
    int64_t end = tile_keys(c, t, last, key).end;
    int64_t from = tile_keys(c, t, rows.first, key).from / PANEL_KEYS * PANEL_KEYS;
    for (int64_t m = 0; m < R; m++)
        for (int64_t j = from; j < end; j += PANEL_KEYS) {
            int64_t cols = i64_min(ceil_div(end - j, PAD) * PAD, PANEL_KEYS);
            Product p = {.c = s->x + (rows.first * R + m) * TILE_KEYS + j,
                         .ldc = rows.step * R * TILE_KEYS,
                         .a = s->q + (m * TILE_ROWS + rows.first) * c->d_words,
                         .lda = rows.step * c->d_words,
                         .b = key_panel(c, t, key + j, m), .ldb = PANEL_KEYS};
            c->product(&p, rows.n, cols, c->d_words, NULL, c->a->scale);
        }
}

void attn_logits(const AttnCall *c, const AttnTile *t, AttnScratch *s, TileRows rows,
                 int64_t key)
{
    for (int64_t i = 0; i < rows.n; i += GROUP_ROWS)
        group_logits(c, t, s, (TileRows){rows.first + i * rows.step,
                                         i64_min(rows.n - i, GROUP_ROWS), rows.step}, key);
}

/* They begin with a whole PAD: what is out of reach there is masked. */
float attn_weigh(const AttnCall *c, float *x, TileKeys k, SoftmaxRow *row)
{
    int64_t   first = k.from / PAD * PAD;
    uint16_t *halves = c->per_word == 2 ? (uint16_t *)(void *)x + first : NULL;
    for (int64_t j = first; j < k.from; j++)
        x[j] = -INFINITY;
    return c->isa->softmax(x + first, k.end - first, row, c->a->dtype == DTYPE_BF16, halves);
}

/* The logits k of row r of the tile to weights, quantized on the way. */
static void weigh_row(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t r,
                      TileKeys k)
{
    int64_t first = k.from / PAD * PAD;
    float  *x = s->x + r * TILE_KEYS;
    if (c->row_scale)
        c->isa->quantize(x + first, k.end - first,
                         c->row_scale[call_row(c, t, r / c->n_rows, r % c->n_rows)],
                         attn_code_limit(c->a->logit_bits));
    s->keep[r] = attn_weigh(c, x, k, &s->softmax[r]);
}

/* Rows of logits to rows of weights, recorded and quantized on the way. */
static void weigh_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t key)
{
    for (int64_t r = 0; r < t->n_rows * c->n_rows; r++) {
        TileKeys k = tile_keys(c, t, r / c->n_rows, key);
        s->keep[r] = 1;
        if (k.from >= k.end)
            continue;
        if (s->lanes)
            attn_record_row(c, t, s, r, key, k);
        weigh_row(c, t, s, r, k);
    }
}

/* --- values --- */

/* Words `from` .. `end` of weights and values; half: of their one word, what it leaves. */
static void add_words(const AttnCall *c, const AttnValues *a, int64_t from, int64_t end, Word half)
{
    int64_t ld = c->dv_pad;
    Product p = {a->o, words_of(a->x) + from, a->v + from * ld, ld, a->ldx, ld};
    if (from >= end)
        return;
    if (half)
        c->isa->half(&p, a->rows, ld, a->keep, half);
    else
        c->product(&p, a->rows, ld, end - from, a->keep, 1);
    for (int64_t i = 0; i < a->rows; i++)
        a->keep[i] = 1;
}

void attn_add_values(const AttnCall *c, const AttnValues *a, TileKeys k)
{
    int64_t n = c->per_word, first = ceil_div(k.from, n), end = k.end / n;
    if (first * n > k.from)
        add_words(c, a, first - 1, first, ~(Word)LOW_HALF);
    add_words(c, a, first, end, 0);
    if (end * n < k.end)
        add_words(c, a, end, end + 1, LOW_HALF);
}

static void rows_values(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t r,
                        int64_t n, int64_t key, TileKeys k)
{
    int64_t    row = t->group * value_rows(c, c->a->batch.n_sequences) +
                     value_rows(c, t->sequence) + key / c->per_word;
    AttnValues a = {.o = s->o + r * c->dv_pad, .keep = s->keep + r,
                    .x = s->x + r * TILE_KEYS, .ldx = TILE_KEYS, .rows = n,
                    .v = c->v_rows + row * c->dv_pad};
    attn_add_values(c, &a, k);
}

/* Row by row: of the keys that each sees, those within k. */
static void single_values(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t r,
                          int64_t n, int64_t key, TileKeys k)
{
    for (int64_t end = r + n; r < end; r++) {
        TileKeys own = tile_keys(c, t, r / c->n_rows, key);
        own = (TileKeys){i64_max(own.from, k.from), i64_min(own.end, k.end)};
        if (own.from < own.end)
            rows_values(c, t, s, r, 1, key, own);
    }
}

/* The keys that all of the rows see at once, in whole words, the few before and after row by
 * row: 0 times the infinity of a key that is not seen is NaN. Of any row the keys come in
 * order, and which share a word does not depend on the others. */
static void group_values(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t r,
                         int64_t n, int64_t key)
{
    TileKeys first = tile_keys(c, t, r / c->n_rows, key);
    TileKeys last = tile_keys(c, t, (r + n - 1) / c->n_rows, key);
    int64_t  from = ceil_div(last.from, c->per_word) * c->per_word;
    TileKeys all = {from, i64_max(first.end / c->per_word * c->per_word, from)};
    if (first.from < all.from)
        single_values(c, t, s, r, n, key, (TileKeys){first.from, all.from});
    if (all.from < all.end)
        rows_values(c, t, s, r, n, key, all);
    if (all.end < last.end)
        single_values(c, t, s, r, n, key, (TileKeys){all.end, last.end});
}

static void add_values(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t key)
{
    int64_t rows = t->n_rows * c->n_rows;
    for (int64_t r = 0; r < rows; r += GROUP_ROWS)
        group_values(c, t, s, r, i64_min(rows - r, GROUP_ROWS), key);
}

static void finish_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    const Attention *a = c->a;
    HeadFinish f = {.n_maps = a->n_maps, .dv = c->dv, .norm_eps = a->norm_eps,
                    .out_scale = a->out_scale, .norm_weight = c->norm_weight};
    for (int64_t i = 0; i < t->n_rows; i++)
        for (int64_t j = 0; j < c->n_signals; j++) {
            int64_t r = i * c->n_rows + j, head = t->block * c->n_signals + j;
            int64_t noise = i * c->n_rows + c->n_signals;
            f.weight[0] = (float)(1 / s->softmax[r].sum);
            if (a->n_maps == 2)
                f.weight[1] = (float)(lambda_of(c, t, i, head) / s->softmax[noise].sum);
            float *out = c->out + ((t->row + i) * a->n_heads + head) * c->dv;
            c->isa->finish(out, s->o + r * c->dv_pad, (noise - r) * c->dv_pad, &f);
        }
}

static void begin_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t rows = t->n_rows * c->n_rows;
    memset(s->o, 0, (size_t)(rows * c->dv_pad) * sizeof *s->o);
    if (s->lanes)
        attn_record_open(c, t, s);
    for (int64_t r = 0; r < rows; r++)
        s->softmax[r] = (SoftmaxRow){-INFINITY, 0};
}

void attn_tile(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t end = tile_allowed(t, t->n_rows - 1, 0);  // of the last query's keys
    attn_load_queries(c, t, s);
    begin_rows(c, t, s);
    for (int64_t key = tile_first_key(c, t, 0); key < end; key += TILE_KEYS) {
        attn_logits(c, t, s, (TileRows){0, t->n_rows, 1}, key);
        weigh_rows(c, t, s, key);
        add_values(c, t, s, key);
    }
    finish_rows(c, t, s);
    if (s->lanes)
        attn_record_close(c, t, s);
    if (c->row_shares || c->a->window)
        attn_second_pass(c, t, s);
}
