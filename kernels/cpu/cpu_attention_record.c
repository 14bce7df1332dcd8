/* cpu_attention_record.c - statistics of the logits, row by row of a tile.
 * figures   record.h: of logits after the scale, before mask and quantization,
 *           allowed entries only; a noise map that heads share counts once, with
 *           the first of them, and the others have none
 * cost      cpu_record_isa.c a logit; one Moments for RECORD_ROWS rows of a map, merged
 *           after the tiles
 * sums      in 16 lanes: of RECORD_ROWS rows, TILE_KEYS keys after TILE_KEYS keys, in order;
 *           then in order of (sequence, query) a head and map
 * NaN       counted apart, as infinities are
 * test      tests/kernels/test_attention_record.c */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/half.h"

void attn_record_begin(const AttnCall *c, AttnScratch *threads, int n_threads)
{
    int64_t M = c->a->n_maps;
#pragma omp parallel for num_threads(n_threads) schedule(static, 1)
    for (int i = 0; i < n_threads; i++) {
        RecordTally *y = &threads[i].tally;
        y->floor = peaks_threshold(&c->a->record->peaks);
        memset(y->hist, 0, (size_t)(M * HIST_BINS) * sizeof *y->hist);
        memset(y->column, 0, (size_t)(M * c->longest) * sizeof *y->column);
    }
}

static void offer_peaks(const AttnCall *c, const AttnTile *t, RecordTally *y, const float *x,
                        Peak at, int64_t n)
{
    float threshold = tally_threshold(y);
    at.layer = c->a->record->layer;
    at.sequence = c->a->batch.number[t->sequence];
    for (int64_t j = 0; j < n; j++, at.key++) {
        if (!(fabsf(x[j]) >= threshold) || isinf(x[j]))
            continue;
        at.value = x[j];
        peaks_add(&y->peaks, &at);
        threshold = tally_threshold(y);
    }
}

void attn_record_open(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    memset(s->lanes, 0, (size_t)(TILE_PARTS * c->n_rows) * sizeof *s->lanes);
    for (int64_t i = 0; i < t->n_rows; i++)
        memset(c->row_absmax + call_row(c, t, i, 0), 0,
               (size_t)c->n_rows * sizeof *c->row_absmax);
}

/* The tile's parts, of all its maps, among those of the call. */
static Moments *tile_moments(const AttnCall *c, const AttnTile *t, int64_t part)
{
    int64_t tile = c->tile_start[t->sequence] +
                   (t->row - c->a->batch.start[t->sequence]) / TILE_ROWS;
    return c->moments +
           ((tile * TILE_PARTS + part) * c->n_blocks + t->block) * c->n_rows;
}

void attn_record_close(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    for (int64_t part = 0; part < TILE_PARTS; part++)
        for (int64_t m = 0; m < c->n_rows; m++)
            moment_lanes_close(tile_moments(c, t, part) + m, &s->lanes[part * c->n_rows + m]);
}

void attn_record_row(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t r,
                     int64_t key, TileKeys seen)
{
    RecordTally *y = &s->tally;
    int64_t i = r / c->n_rows, row = r % c->n_rows, m = map_of(c, row);
    int64_t n = seen.end - seen.from;
    const float *x = s->x + r * TILE_KEYS + seen.from;
    uint32_t *row_max = &c->row_absmax[call_row(c, t, i, row)];
    key += seen.from;
    uint32_t max = c->record_isa->strip(&s->lanes[i / RECORD_ROWS * c->n_rows + row], x, n,
                                        y->hist + m * HIST_BINS,
                                        y->column + m * c->longest + key);
    *row_max = max > *row_max ? max : *row_max;
    if (f32_from_bits(max) >= tally_threshold(y))
        offer_peaks(c, t, y, x, (Peak){.head = (int32_t)head_of(c, t->block, row),
                                       .map = (int32_t)m, .key = (int32_t)key,
                                       .position = (int32_t)(t->position + i)}, n);
    y->counted += n;
    if (y->counted >= TALLY_FULL) {
#pragma omp critical(attn_hist)
        for (int64_t map = 0; map < c->a->n_maps; map++)
            hist_flush(&c->a->record->hist[map], y->hist + map * HIST_BINS, 0, HIST_OCTAVES);
        y->counted = 0;
    }
}

/* One map: its parts in order, whatever the threads did. */
static void merge_moments(const AttnCall *c, int64_t map)
{
    int64_t maps = c->n_blocks * c->n_rows, row = map % c->n_rows;
    int64_t parts = c->tile_start[c->a->batch.n_sequences] * TILE_PARTS;
    int64_t slot = head_of(c, map / c->n_rows, row) * c->a->n_maps + map_of(c, row);
    for (int64_t i = 0; i < parts; i++)
        moments_merge(&c->a->record->moments[slot], &c->moments[i * maps + map]);
}

/* Row t of all, at that position in its sequence. */
static void raise_query_absmax(const AttnCall *c, int64_t t, int64_t position)
{
    const LogitRecord *r = c->a->record;
    int64_t maps = c->n_blocks * c->n_rows;
    for (int64_t i = 0; i < maps; i++) {
        float *max = &r->query_absmax[map_of(c, i % c->n_rows) * r->n_positions + position];
        float v = f32_from_bits(c->row_absmax[t * maps + i]);
        *max = v > *max ? v : *max;
    }
}

static void merge_query_absmax(const AttnCall *c)
{
    const int32_t *start = c->a->batch.start;
    for (int64_t b = 0; b < c->a->batch.n_sequences; b++) {
        int64_t n_keys = c->key_start[b + 1] - c->key_start[b];
        int64_t before = n_keys - (start[b + 1] - start[b]);  // keys in the cache
        for (int64_t t = start[b]; t < start[b + 1]; t++)
            raise_query_absmax(c, t, before + t - start[b]);
    }
}

enum { SLICES = 15, SLICE = HIST_OCTAVES / SLICES };

/* A slice of a map's octaves, of all threads. */
static void merge_slice(Hist *h, const AttnScratch *threads, int n_threads, int64_t map,
                        int64_t slice)
{
    for (int j = 0; j < n_threads; j++)
        hist_flush(h, threads[j].tally.hist + map * HIST_BINS, slice * SLICE,
                   (slice + 1) * SLICE);
}

void attn_record_merge(const AttnCall *c, AttnScratch *threads, int n_threads)
{
    LogitRecord *r = c->a->record;
#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < c->n_blocks * c->n_rows; i++)
            merge_moments(c, i);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < r->n_maps * SLICES; i++)
            merge_slice(&r->hist[i / SLICES], threads, n_threads, i / SLICES, i % SLICES);
    }
    merge_query_absmax(c);
    for (int i = 0; i < n_threads; i++) {
        const RecordTally *y = &threads[i].tally;
        peaks_merge(&r->peaks, &y->peaks);
        for (int64_t m = 0; m < r->n_maps; m++)
            absmax_flush(r->key_absmax + m * r->n_positions, y->column + m * c->longest,
                         c->longest);
    }
}
