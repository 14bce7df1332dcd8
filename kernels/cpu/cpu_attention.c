/* cpu_attention.c - causal attention, plain or differential: one call.
 * out       backend.h, Attention
 * shapes    any T, S >= T, d; sequences in a batch share nothing
 * cost      the tiles' products; memory linear in S: packed keys and values, a
 *           tile a thread, one Moments a row and map when recording
 * sums      cpu_attention.h: no figure depends on the threads or the batch
 * NaN       stays where it can be seen (cpu_attention_tile.c)
 * test      tests/kernels/test_attention*.c, test_logit_quant.c */
#include "kernels/cpu/cpu_attention.h"

#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/size.h"

const AttnIsa *attn_isa(void)
{
    static const AttnIsa *const OF[N_CPU_ISAS] = {&attn_plain, &attn_avx2, &attn_avx512};
    return OF[cpu_isa()];
}

static Status floats(float **p, Arena *arena, int64_t n)
{
    *p = arena_raw(arena, n, sizeof **p);
    if (!*p)
        FAIL(ERR_MEMORY, "out of memory: attention needs %lld floats", (long long)n);
    return OK;
}

static int64_t n_queries(const AttnCall *c, int64_t b)
{
    return c->a->batch.start[b + 1] - c->a->batch.start[b];
}

static int64_t n_keys(const AttnCall *c, int64_t b)
{
    return c->key_start[b + 1] - c->key_start[b];
}

/* Where each sequence's panels, tiles and sampled rows begin. */
static Status plan(AttnCall *c, Arena *arena)
{
    int64_t B = c->a->batch.n_sequences;
    ARENA_NEW(c->panel_start, arena, B + 1);
    ARENA_NEW(c->tile_start, arena, B + 1);
    ARENA_NEW(c->sample_start, arena, B + 1);
    for (int64_t b = 0; b < B; b++) {
        int64_t S = n_keys(c, b), T = n_queries(c, b);
        c->panel_start[b + 1] = c->panel_start[b] + ceil_div(S, PANEL_KEYS);
        c->tile_start[b + 1] = c->tile_start[b] + ceil_div(T, TILE_ROWS);
        c->sample_start[b + 1] =
            c->sample_start[b] + S / SHARE_STRIDE - (S - T) / SHARE_STRIDE;
        c->longest = i64_max(c->longest, S);
    }
    return OK;
}

static Status allocate(AttnCall *c, Arena *arena)
{
    const Attention *a = c->a;
    int64_t B = a->batch.n_sequences, rows = a->batch.start[B] * a->n_heads * a->n_maps;
    TRY(floats(&c->k_panels, arena,
               c->panel_start[B] * a->n_groups * a->n_maps * c->d * PANEL_KEYS));
    TRY(floats(&c->v_rows, arena, a->n_groups * c->n_keys * c->dv_pad));
    if (a->norm_eps >= 0 && a->norm_weight) {
        ARENA_NEW(c->norm_weight, arena, c->dv_pad);
        memcpy(c->norm_weight, a->norm_weight, (size_t)c->dv * sizeof(float));
    }
    if (a->logit_bits < 16)
        TRY(floats(&c->row_scale, arena, rows));
    if (a->record)
        ARENA_NEW(c->row_moments, arena, rows);
    if (a->shares)
        ARENA_NEW(c->row_shares, arena, c->sample_start[B] * a->n_heads);
    return OK;
}

static Status scratch_init(AttnScratch *s, Arena *arena, const AttnCall *c)
{
    int64_t rows = TILE_ROWS * c->a->n_maps;
    TRY(floats(&s->q, arena, rows * c->d));
    TRY(floats(&s->x, arena, rows * TILE_KEYS));
    TRY(floats(&s->o, arena, rows * c->dv_pad));
    TRY(floats(&s->keep, arena, rows));
    ARENA_NEW(s->softmax, arena, rows);
    if (!c->a->record)
        return OK;
    ARENA_NEW(s->lanes, arena, rows);
    ARENA_NEW(s->tally, arena, 1);
    return attn_tally_init(s->tally, arena, c);
}

/* Tile i of all. Of one head the last tiles come first: they are the longest. */
static AttnTile tile_at(const AttnCall *c, int64_t i)
{
    int64_t H = c->a->n_heads, b = 0;
    while (i >= c->tile_start[b + 1] * H)
        b++;
    int64_t n = c->tile_start[b + 1] - c->tile_start[b];
    i -= c->tile_start[b] * H;
    int64_t first = (n - 1 - i % n) * TILE_ROWS;
    return (AttnTile){.sequence = b, .head = i / n, .group = i / n / (H / c->a->n_groups),
                      .row = c->a->batch.start[b] + first,
                      .n_rows = i64_min(n_queries(c, b) - first, TILE_ROWS),
                      .position = n_keys(c, b) - n_queries(c, b) + first};
}

static void run_tiles(const AttnCall *c, AttnScratch *s, int n_threads,
                      void (*run)(const AttnCall *, const AttnTile *, AttnScratch *))
{
    int64_t n = c->tile_start[c->a->batch.n_sequences] * c->a->n_heads;
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

static Status attend(AttnCall *c, Arena *arena, const Tensor *k, const Tensor *v,
                     int n_threads)
{
    AttnScratch *s;
    TRY(plan(c, arena));
    TRY(allocate(c, arena));
    int64_t n_tiles = c->tile_start[c->a->batch.n_sequences] * c->a->n_heads;
    n_threads = (int)i64_max(1, i64_min(n_threads, n_tiles));
    ARENA_NEW(s, arena, n_threads);
    for (int i = 0; i < n_threads; i++)
        TRY(scratch_init(&s[i], arena, c));
    attn_pack(c, k->data, v->data, n_threads);
    if (c->a->window)
        clear_window(c);
    if (c->row_scale) {
        run_tiles(c, s, n_threads, attn_absmax);
        attn_scales(c);
    }
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
    AttnCall c = {.a = a, .isa = attn_isa(), .record_isa = record_isa(),
                  .share_isa = share_isa(),
                  .key_start = a->key_start ? a->key_start : a->batch.start,
                  .d = a->head_dim, .dv = a->head_dim * a->n_maps,
                  .dv_pad = ceil_div(a->head_dim * a->n_maps, PAD) * PAD,
                  .q = q->data, .out = out->data};
    c.n_keys = c.key_start[a->batch.n_sequences];
    ArenaMark mark = arena_mark(&be->arena);
    Status s = attend(&c, &be->arena, k, v, be->n_threads);
    arena_rewind(&be->arena, mark);
    return s;
}
