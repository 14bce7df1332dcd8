/* cpu_attention_step.c - attention of one query a sequence, over keys and values where they
 * lie: packed for all tiles beforehand (cpu_attention_pack.c) they would be written and read
 * again for a single use.
 * out       backend.h, Attention
 * shapes    any S, d; one query a sequence, all heads of a group together
 * cost      4 (d + dv) bytes a key and group: memory bound. TILE_KEYS keys at a time are
 *           packed into the cache of their thread
 * threads   take a group of a sequence each
 * sums      the very ones of cpu_attention_tile.c
 * NaN       as there
 * test      tests/kernels/test_attention*.c, cases of one query */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_carve.h"

enum { AHEAD = 64 };  // values that are fetched before they are looked at

/* One group of a sequence. Rows: those of q that look at its keys, block by block. */
typedef struct {
    const AttnCall *c;
    const float    *k, *v;       // of the first key
    int64_t         ldk, ldv;
    int64_t         n_keys, n_rows;
    int64_t         first_row;   // in q
    int64_t         first_head;  // in out, all sequences' one after another
} Step;

/* Memory of one thread. */
typedef struct {
    Word       *q;        // [rows,d_words]
    Word       *k;        // [d_words,PANEL_KEYS]
    Word       *key_rows; // [PANEL_KEYS,d_words] on their way there, of bf16
    Word       *v;        // [TILE_KEYS / per_word,dv_pad]
    float      *x;        // [rows,TILE_KEYS] logits, then words of weights
    float      *o;        // [rows,dv_pad]
    float      *keep;     // [rows]
    SoftmaxRow *softmax;  // [rows]
} StepScratch;

bool attn_is_step(const AttnCall *c)
{
    const Attention *a = c->a;
    for (int64_t b = 0; b < a->batch.n_sequences; b++)
        if (a->batch.start[b + 1] - a->batch.start[b] != 1)
            return false;
    return !a->record && !a->shares && !a->window && a->logit_bits == 16;
}

static int64_t rows_of_group(const AttnCall *c)
{
    return c->n_blocks / c->a->n_groups * c->n_rows;
}

static Step step_at(const AttnCall *c, const Tensor *k, const Tensor *v, int64_t task)
{
    int64_t G = c->a->n_groups, b = task / G, g = task % G, rows = rows_of_group(c);
    int64_t key = c->key_start[b], width = c->n_key_maps * c->d;
    Step    s = {.c = c, .ldk = G * width, .ldv = G * c->dv, .n_rows = rows,
                 .n_keys = c->key_start[b + 1] - key, .first_row = task * rows,
                 .first_head = task * (c->a->n_heads / G)};
    s.k = (const float *)k->data + key * s.ldk + g * width;
    s.v = (const float *)v->data + key * s.ldv + g * c->dv;
    return s;
}

static void begin(const Step *st, StepScratch *s)
{
    const AttnCall *c = st->c;
    const float    *q = c->q + st->first_row * c->d;
    for (int64_t r = 0; r < st->n_rows; r++)
        attn_pack_row(c, s->q + r * c->d_words, q + r * c->d);
    memset(s->o, 0, (size_t)(st->n_rows * c->dv_pad) * sizeof *s->o);
    for (int64_t r = 0; r < st->n_rows; r++)
        s->softmax[r] = (SoftmaxRow){-INFINITY, 0};
}

/* Of `n` rows ld apart, `width` floats each: a group's part of a row is too short for the
 * processor to see where it goes on. */
static void prefetch(const float *from, int64_t ld, int64_t n, int64_t width)
{
    enum { LINE = 64 / sizeof(float) };
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j += LINE)
            __builtin_prefetch(from + i * ld + j);
}

/* Rows of map `map`, or all where the maps share their keys, to s->x: the panels of keys
 * key + from .. key + end. */
static void map_logits(const Step *st, StepScratch *s, int64_t map, int64_t key, TileKeys k)
{
    const AttnCall *c = st->c;
    const float    *keys = st->k + map * c->d;
    for (int64_t j = k.from / PANEL_KEYS * PANEL_KEYS; j < k.end; j += PANEL_KEYS) {
        int64_t n = i64_min(k.end - j, PANEL_KEYS);
        const float *from = keys + (key + j) * st->ldk;
        prefetch(from + n * st->ldk, st->ldk, i64_min(st->n_keys - key - j - n, PANEL_KEYS),
                 c->d);
        attn_pack_keys(c, s->k, s->key_rows, from, n);
        for (int64_t m = 0; m < c->n_rows; m++) {
            if (c->n_key_maps == 2 && map_of(c, m) != map)
                continue;
            Product p = {.c = s->x + m * TILE_KEYS + j, .ldc = c->n_rows * TILE_KEYS,
                         .a = s->q + m * c->d_words, .lda = c->n_rows * c->d_words,
                         .b = s->k, .ldb = PANEL_KEYS};
            c->product(&p, st->n_rows / c->n_rows, ceil_div(n, PAD) * PAD, c->d_words, NULL,
                       c->a->scale);
        }
    }
}

static void weigh(const Step *st, StepScratch *s, TileKeys k)
{
    for (int64_t r = 0; r < st->n_rows; r++)
        s->keep[r] = attn_weigh(st->c, s->x + r * TILE_KEYS, k, &s->softmax[r]);
}

static void add_values(const Step *st, StepScratch *s, int64_t key, TileKeys k)
{
    const AttnCall *c = st->c;
    int64_t         n = c->per_word;
    for (int64_t j = k.from / n * n; j < k.end; j += n) {
        const float *from = st->v + (key + j) * st->ldv;
        if (key + j + AHEAD + n <= st->n_keys)
            prefetch(from + AHEAD * st->ldv, st->ldv, n, c->dv);
        attn_pack_values(c, s->v + j / n * c->dv_pad, from, i64_min(k.end - j, n));
    }
    AttnValues a = {.o = s->o, .keep = s->keep, .x = s->x, .ldx = TILE_KEYS, .v = s->v,
                    .rows = st->n_rows};
    attn_add_values(c, &a, k);
}

static void finish(const Step *st, StepScratch *s)
{
    const AttnCall  *c = st->c;
    const Attention *a = c->a;
    int64_t          n = c->n_signals;
    HeadFinish f = {.n_maps = a->n_maps, .dv = c->dv, .norm_eps = a->norm_eps,
                    .out_scale = a->out_scale, .norm_weight = c->norm_weight};
    for (int64_t i = 0; i < st->n_rows / c->n_rows * n; i++) {
        int64_t noise = i / n * c->n_rows + n, r = i / n * c->n_rows + i % n;
        int64_t head = st->first_head + i;
        f.weight[0] = (float)(1 / s->softmax[r].sum);
        if (a->n_maps == 2)
            f.weight[1] = (float)((double)(a->lambda_rows ? a->lambda_rows[head] : a->lambda) /
                                  s->softmax[noise].sum);
        c->isa->finish(c->out + head * c->dv, s->o + r * c->dv_pad,
                       (noise - r) * c->dv_pad, &f);
    }
}

static void run_step(const Step *st, StepScratch *s)
{
    const AttnCall *c = st->c;
    int64_t         S = st->n_keys, reach = c->a->reach ? i64_min(c->a->reach, S) : S;
    prefetch(st->k + (S - reach) * st->ldk, st->ldk, i64_min(reach, PANEL_KEYS), c->d);
    prefetch(st->v + (S - reach) * st->ldv, st->ldv, i64_min(reach, AHEAD), c->dv);
    begin(st, s);
    for (int64_t key = (S - reach) / TILE_KEYS * TILE_KEYS; key < S; key += TILE_KEYS) {
        TileKeys k = {i64_max(S - reach - key, 0), i64_min(S - key, TILE_KEYS)};
        for (int64_t map = 0; map < c->n_key_maps; map++)
            map_logits(st, s, map, key, k);
        weigh(st, s, k);
        add_values(st, s, key, k);
    }
    finish(st, s);
}

static void place(StepScratch *s, float **norm_weight, const AttnCall *c, int n_threads,
                  Carve *m)
{
    int64_t rows = rows_of_group(c);
    if (c->a->norm_eps >= 0 && c->a->norm_weight)
        CARVE(*norm_weight, m, c->dv_pad);
    for (int i = 0; i < n_threads; i++, s++) {
        CARVE(s->q, m, rows * c->d_words);
        CARVE(s->k, m, PANEL_KEYS * c->d_words);
        CARVE(s->key_rows, m, c->a->dtype == DTYPE_BF16 ? c->d_words * PANEL_KEYS : 0);
        CARVE(s->v, m, TILE_KEYS / c->per_word * c->dv_pad);
        CARVE(s->x, m, rows * TILE_KEYS);
        CARVE(s->o, m, rows * c->dv_pad);
        CARVE(s->keep, m, rows);
        CARVE(s->softmax, m, rows);
    }
}

Status attn_step(AttnCall *c, Backend *be, const Tensor *k, const Tensor *v)
{
    int64_t n = c->a->batch.n_sequences * c->a->n_groups;
    int64_t keys = c->key_start[c->a->batch.n_sequences];
    int n_threads = (int)i64_max(
        1, i64_min(n, cpu_threads(be, keys * c->n_blocks * c->n_rows * (c->d + c->dv))));
    StepScratch *s;
    void        *memory;
    Carve        m = {0};
    ARENA_NEW(s, &be->arena, n_threads);
    place(s, &c->norm_weight, c, n_threads, &m);
    if (m.overflow)
        FAIL(ERR_MEMORY, "attention of %lld heads does not fit memory",
             (long long)c->a->n_heads);
    TRY(cpu_scratch(be, &memory, m.used));
    m = (Carve){.base = memory};
    place(s, &c->norm_weight, c, n_threads, &m);
    attn_pad_norm_weight(c);
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++) {
        Step st = step_at(c, k, v, i);
        run_step(&st, &s[omp_get_thread_num()]);
    }
    return OK;
}
