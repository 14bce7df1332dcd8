/* cpu_attention.c - causal attention, plain or differential: one call.
 * out       backend.h, Attention
 * shapes    any T, S >= T, d; sequences in a batch share nothing
 * cost      the tiles' products, linear in the reach where there is one; memory
 *           linear in S: packed keys and values, a tile a thread, one Moments for
 *           RECORD_ROWS rows of a map when recording
 * sums      cpu_attention.h: no figure depends on the threads or the batch
 * NaN       stays where it can be seen (cpu_attention_tile.c)
 * test      tests/kernels/test_attention*.c, test_logit_quant.c */
#include "kernels/cpu/cpu_attention.h"

#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_carve.h"
#include "kernels/cpufeat.h"

const AttnIsa *attn_isa(void)
{
    static const AttnIsa *const OF[N_CPU_ISAS] = {&attn_plain, &attn_avx2, &attn_avx512};
    return OF[cpu_isa()];
}

static int64_t n_queries(const AttnCall *c, int64_t b)
{
    return c->a->batch.start[b + 1] - c->a->batch.start[b];
}

static int64_t n_keys(const AttnCall *c, int64_t b)
{
    return c->key_start[b + 1] - c->key_start[b];
}

/* Numbers the rows whose shares are wanted. */
static Status plan_samples(AttnCall *c, Arena *arena)
{
    const Attention *a = c->a;
    ARENA_NEW(c->sample, arena, a->batch.start[a->batch.n_sequences]);
    for (int64_t b = 0; b < a->batch.n_sequences; b++)
        for (int64_t t = a->batch.start[b]; t < a->batch.start[b + 1]; t++) {
            int64_t position = n_keys(c, b) - n_queries(c, b) + t - a->batch.start[b];
            bool    wanted = a->share_rows ? a->share_rows[t]
                                           : position % SHARE_STRIDE == SHARE_STRIDE - 1;
            c->sample[t] = wanted ? (int32_t)c->n_samples++ : -1;
        }
    return OK;
}

/* Where each sequence's panels and tiles begin, and which rows are sampled. */
static Status plan(AttnCall *c, Arena *arena)
{
    int64_t B = c->a->batch.n_sequences;
    ARENA_NEW(c->panel_start, arena, B + 1);
    ARENA_NEW(c->tile_start, arena, B + 1);
    for (int64_t b = 0; b < B; b++) {
        int64_t S = n_keys(c, b), T = n_queries(c, b);
        c->panel_start[b + 1] = c->panel_start[b] + ceil_div(S, PANEL_KEYS);
        c->tile_start[b + 1] = c->tile_start[b] + ceil_div(T, TILE_ROWS);
        c->longest = i64_max(c->longest, S);
    }
    c->reach = c->a->reach ? i64_min(c->a->reach, c->longest) : c->longest;
    return c->a->shares ? plan_samples(c, arena) : OK;
}

static void place_scratch(AttnScratch *s, Carve *m, const AttnCall *c)
{
    int64_t M = c->a->n_maps, rows = TILE_ROWS * c->n_rows;
    CARVE(s->q, m, rows * c->d_words);
    CARVE(s->key_rows, m, c->a->dtype == DTYPE_BF16 ? c->d_words * PANEL_KEYS : 0);
    CARVE(s->x, m, rows * TILE_KEYS);
    CARVE(s->o, m, rows * c->dv_pad);
    CARVE(s->keep, m, rows);
    CARVE(s->softmax, m, rows);
    if (c->a->shares || c->a->window) {
        CARVE(s->p, m, c->n_rows * TILE_KEYS);
        CARVE(s->shares, m, TILE_ROWS * c->n_signals);
    }
    if (!c->a->record)
        return;
    CARVE(s->lanes, m, TILE_PARTS * c->n_rows);
    CARVE(s->tally.hist, m, M * HIST_BINS);
    CARVE(s->tally.column, m, M * c->longest);
}

/* Everything but the plan, in one piece; run twice (cpu_carve.h). */
static void place(AttnCall *c, AttnScratch *s, int n_threads, Carve *m)
{
    const Attention *a = c->a;
    int64_t B = a->batch.n_sequences, rows = a->batch.start[B] * c->n_blocks * c->n_rows;
    CARVE(c->k_panels, m,
          c->panel_start[B] * a->n_groups * c->n_key_maps * c->d_words * PANEL_KEYS);
    CARVE(c->v_rows, m, a->n_groups * value_rows(c, B) * c->dv_pad);
    if (a->norm_eps >= 0 && a->norm_weight)
        CARVE(c->norm_weight, m, c->dv_pad);
    if (a->logit_bits < 16)
        CARVE(c->row_scale, m, rows);
    if (a->record) {
        CARVE(c->moments, m, c->tile_start[B] * TILE_PARTS * c->n_blocks * c->n_rows);
        CARVE(c->row_absmax, m, rows);
    }
    if (a->shares)
        CARVE(c->row_shares, m, c->n_samples * a->n_heads);
    for (int i = 0; i < n_threads; i++)
        place_scratch(&s[i], m, c);
}

void attn_pad_norm_weight(const AttnCall *c)
{
    if (!c->norm_weight)
        return;
    memset(c->norm_weight, 0, (size_t)c->dv_pad * sizeof(float));
    memcpy(c->norm_weight, c->a->norm_weight, (size_t)c->dv * sizeof(float));
}

static Status allocate(Backend *be, AttnCall *c, AttnScratch *s, int n_threads)
{
    void *memory;
    Carve m = {0};
    place(c, s, n_threads, &m);
    if (m.overflow)
        FAIL(ERR_MEMORY, "attention over %lld keys does not fit memory",
             (long long)c->n_keys);
    TRY(cpu_scratch(be, &memory, m.used));
    m = (Carve){.base = memory};
    place(c, s, n_threads, &m);
    attn_pad_norm_weight(c);
    return OK;
}

/* Tile i of all. Of one block the last tiles come first: they are the longest. */
static AttnTile tile_at(const AttnCall *c, int64_t i)
{
    int64_t blocks = c->n_blocks, b = 0;
    while (i >= c->tile_start[b + 1] * blocks)
        b++;
    int64_t n = c->tile_start[b + 1] - c->tile_start[b];
    i -= c->tile_start[b] * blocks;
    int64_t first = (n - 1 - i % n) * TILE_ROWS;
    return (AttnTile){.sequence = b, .block = i / n,
                      .group = i / n / (blocks / c->a->n_groups),
                      .row = c->a->batch.start[b] + first,
                      .n_rows = i64_min(n_queries(c, b) - first, TILE_ROWS),
                      .position = n_keys(c, b) - n_queries(c, b) + first};
}

static void run_tiles(const AttnCall *c, AttnScratch *s, int n_threads,
                      void (*run)(const AttnCall *, const AttnTile *, AttnScratch *))
{
    int64_t n = c->tile_start[c->a->batch.n_sequences] * c->n_blocks;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++) {
        AttnTile t = tile_at(c, i);
        run(c, &t, &s[omp_get_thread_num()]);
    }
}

/* Rows before the queries and columns past the keys stay 0. */
static void clear_window(const AttnCall *c)
{
    const MapWindow *w = c->a->window;
    size_t map = (size_t)(c->a->n_heads * w->n_positions * w->n_positions) * sizeof(float);
    if (w->sequence < 0)
        return;
    if (w->maps)
        memset(w->maps, 0, map * (size_t)c->a->n_maps);
    if (w->diff)
        memset(w->diff, 0, map);
}

static Status attend(Backend *be, AttnCall *c, const Tensor *k, const Tensor *v)
{
    AttnScratch *s;
    TRY(plan(c, &be->arena));
    int64_t n_tiles = c->tile_start[c->a->batch.n_sequences] * c->n_blocks;
    int n_threads = (int)i64_max(1, i64_min(be->n_threads, n_tiles));
    ARENA_NEW(s, &be->arena, n_threads);
    TRY(allocate(be, c, s, n_threads));
    attn_pack(c, s, k->data, v->data, n_threads);
    if (c->a->window)
        clear_window(c);
    if (c->row_scale) {
        run_tiles(c, s, n_threads, attn_absmax);
        attn_scales(c);
    }
    if (c->a->record)
        attn_record_begin(c, s, n_threads);
    run_tiles(c, s, n_threads, attn_tile);
    if (c->a->record)
        attn_record_merge(c, s, n_threads);
    if (c->a->shares)
        attn_share_merge(c);
    return OK;
}

Status cpu_attention(Backend *be, Tensor *out, const Tensor *q, const Tensor *k,
                     const Tensor *v, const Attention *a)
{
    bool     noisy = a->n_maps == 2;
    AttnCall c = {.a = a, .isa = attn_isa(), .record_isa = record_isa(),
                  .share_isa = share_isa(),
                  .key_start = a->key_start ? a->key_start : a->batch.start,
                  .d = a->head_dim, .q = q->data, .out = out->data};
    bool dots = a->dtype == DTYPE_BF16 && cpu_has_bf16_dot();
    c.product = dots ? c.isa->dots : c.isa->product;
    c.per_word = dots ? 2 : 1;
    c.d_words = ceil_div(c.d, c.per_word);
    c.dv = a->value_dim ? a->value_dim : a->head_dim * a->n_maps;
    c.dv_pad = ceil_div(c.dv, PAD) * PAD;
    c.n_signals = noisy ? i64_max(a->n_signals, 1) : 1;
    c.n_blocks = a->n_heads / c.n_signals;
    c.n_rows = c.n_signals + noisy;
    c.n_key_maps = a->shared_keys ? 1 : a->n_maps;
    c.n_keys = c.key_start[a->batch.n_sequences];
    ArenaMark mark = arena_mark(&be->arena);
    Status s = attn_is_step(&c) ? attn_step(&c, be, k, v) : attend(be, &c, k, v);
    arena_rewind(&be->arena, mark);
    return s;
}
