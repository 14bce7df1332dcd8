/* cpu_attention_tile.c - one tile of queries over all its keys.
 * out       = A1 v - lambda A2 v, then the norm of each head (backend.h)
 * shapes    up to TILE_ROWS queries; q gathered, k and v packed
 * cost      2 M d + 2 M dv flops a query and allowed key, in blocks of
 *           GROUP_ROWS x PANEL_KEYS; blocks above the diagonal are skipped
 * sums      f32, a chain over d a logit and a chain over keys an output, begun
 *           again from a multiple when the running maximum rises; their order
 *           depends on TILE_KEYS, never on TILE_ROWS or the threads
 * NaN       a query's NaN stays in its row, a key's or value's in rows after it
 * test      tests/kernels/test_attention.c */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/half.h"
#include "kernels/size.h"

void attn_load_queries(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t M = c->a->n_maps, d = c->d;
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < t->n_rows; i++) {
            const float *from = c->q + call_row(c, t, i, m) * d;
            float *to = s->q + (m * TILE_ROWS + i) * d;
            for (int64_t k = 0; k < d; k++)
                to[k] = c->a->dtype == DTYPE_BF16 ? bf16_round(from[k]) : from[k];
        }
}

static const float *key_panel(const AttnCall *c, const AttnTile *t, int64_t key, int64_t m)
{
    int64_t p = c->panel_start[t->sequence] + key / PANEL_KEYS;
    return c->k_panels +
           ((p * c->a->n_groups + t->group) * c->a->n_maps + m) * c->d * PANEL_KEYS;
}

/* n <= GROUP_ROWS queries against the keys their last one may see. */
static void group_logits(const AttnCall *c, const AttnTile *t, AttnScratch *s, TileRows rows,
                         int64_t key)
{
    int64_t M = c->a->n_maps, last = rows.first + (rows.n - 1) * rows.step;
    int64_t keys = i64_min(tile_allowed(t, last, key), TILE_KEYS);
    for (int64_t m = 0; m < M; m++)
        for (int64_t j = 0; j < keys; j += PANEL_KEYS) {
            int64_t cols = i64_min(ceil_div(keys - j, PAD) * PAD, PANEL_KEYS);
            Product p = {.c = s->x + (rows.first * M + m) * TILE_KEYS + j,
                         .ldc = rows.step * M * TILE_KEYS,
                         .a = s->q + (m * TILE_ROWS + rows.first) * c->d,
                         .lda = rows.step * c->d,
                         .b = key_panel(c, t, key + j, m), .ldb = PANEL_KEYS};
            c->isa->product(&p, rows.n, cols, c->d, NULL, c->a->scale);
        }
}

void attn_logits(const AttnCall *c, const AttnTile *t, AttnScratch *s, TileRows rows,
                 int64_t key)
{
    for (int64_t i = 0; i < rows.n; i += GROUP_ROWS)
        group_logits(c, t, s, (TileRows){rows.first + i * rows.step,
                                         i64_min(rows.n - i, GROUP_ROWS), rows.step}, key);
}

/* Rows of logits to rows of weights, recorded and quantized on the way. */
static void weigh_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t key)
{
    int64_t M = c->a->n_maps;
    bool bf16 = c->a->dtype == DTYPE_BF16;
    for (int64_t r = 0; r < t->n_rows * M; r++) {
        int64_t n = i64_min(tile_allowed(t, r / M, key), TILE_KEYS);
        float *x = s->x + r * TILE_KEYS;
        s->keep[r] = 1;
        if (n <= 0)
            continue;
        if (s->lanes)
            attn_record_row(c, t, s, r, key, n);
        if (c->row_scale)
            c->isa->quantize(x, n, c->row_scale[call_row(c, t, r / M, r % M)],
                             attn_code_limit(c->a->logit_bits));
        s->keep[r] = c->isa->softmax(x, n, &s->softmax[r], bf16);
    }
}

/* o = keep o + weights v for rows r .. r + n. The keys that all of them may see
 * at once, the few others row by row: 0 times a later key's infinity is NaN. */
static void group_values(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t r,
                         int64_t n, int64_t key)
{
    static const float ONE = 1;
    int64_t M = c->a->n_maps, ld = c->dv_pad;
    int64_t row = t->group * c->n_keys + c->key_start[t->sequence] + key;
    int64_t all = i64_max(i64_min(tile_allowed(t, r / M, key), TILE_KEYS), 0);
    Product p = {.c = s->o + r * ld, .ldc = ld, .a = s->x + r * TILE_KEYS,
                 .lda = TILE_KEYS, .b = c->v_rows + row * ld, .ldb = ld};
    c->isa->product(&p, n, ld, all, s->keep + r, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t keys = i64_min(tile_allowed(t, (r + i) / M, key), TILE_KEYS);
        Product one = p;
        one.c += i * ld;
        one.a += i * TILE_KEYS + all;
        one.b += all * ld;
        if (keys > all)
            c->isa->product(&one, 1, ld, keys - all, &ONE, 1);
    }
}

static void add_values(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t key)
{
    int64_t M = c->a->n_maps, rows = t->n_rows * M;
    for (int64_t r = 0; r < rows; r += GROUP_ROWS) {
        int64_t n = i64_min(rows - r, GROUP_ROWS);
        if (tile_allowed(t, (r + n - 1) / M, key) > 0)
            group_values(c, t, s, r, n, key);
    }
}

static void finish_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    const Attention *a = c->a;
    int64_t M = a->n_maps;
    HeadFinish f = {.n_maps = M, .dv = c->dv, .norm_eps = a->norm_eps,
                    .out_scale = a->out_scale, .norm_weight = c->norm_weight};
    for (int64_t i = 0; i < t->n_rows; i++) {
        f.weight[0] = (float)(1 / s->softmax[i * M].sum);
        if (M == 2)
            f.weight[1] = (float)((double)a->lambda / s->softmax[i * M + 1].sum);
        float *out = c->out + ((t->row + i) * a->n_heads + t->head) * c->dv;
        c->isa->finish(out, s->o + i * M * c->dv_pad, c->dv_pad, &f);
    }
}

static void close_moments(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t M = c->a->n_maps;
    for (int64_t r = 0; r < t->n_rows * M; r++)
        moment_lanes_close(&c->row_moments[call_row(c, t, r / M, r % M)], &s->lanes[r]);
}

static void begin_rows(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t rows = t->n_rows * c->a->n_maps;
    memset(s->o, 0, (size_t)(rows * c->dv_pad) * sizeof *s->o);
    if (s->lanes)
        memset(s->lanes, 0, (size_t)rows * sizeof *s->lanes);
    for (int64_t r = 0; r < rows; r++)
        s->softmax[r] = (SoftmaxRow){-INFINITY, 0};
}

void attn_tile(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t end = tile_allowed(t, t->n_rows - 1, 0);  // of the last query's keys
    attn_load_queries(c, t, s);
    begin_rows(c, t, s);
    for (int64_t key = 0; key < end; key += TILE_KEYS) {
        attn_logits(c, t, s, (TileRows){0, t->n_rows, 1}, key);
        weigh_rows(c, t, s, key);
        add_values(c, t, s, key);
    }
    finish_rows(c, t, s);
    if (s->lanes)
        close_moments(c, t, s);
    if (c->row_shares || c->a->window)
        attn_second_pass(c, t, s);
}
