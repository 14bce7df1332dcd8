/* gguf_item.c - the data of all tensors: threads take panels of rows, of whatever tensor
 * comes next, and read, encode and write them from one end to the other. So nothing waits
 * for anything, and memory is that of a panel a thread, whatever the model. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "kernels/halves.h"
#include "kernels/size.h"
#include "quant/formats/gguf_parts.h"
#include "quant/methods/kquant.h"
#include "quant/methods/rounding.h"

/* Numbers of a panel, which is written at once; of a chunk, which stays in L1 and L2 while
 * it is encoded; decoded at once. */
enum { PANEL = 512 << 10, CHUNK = 8 << 10, STEP = BLOCK_LARGE };

size_t gguf_item_bytes(const GgufItem *item)
{
    return gguf_store_bytes(&item->store, item->n * item->k);
}

static size_t row_bytes(const GgufItem *item)
{
    return gguf_store_bytes(&item->store, item->k);
}

/* --- what threads share out --- */

/* Rows first .. first + n of an item. */
typedef struct {
    const GgufItem *item;
    int64_t         first, n;
    size_t          place;   // in the file
    RoundError      error;
} Panel;

typedef struct {
    OutFile        *file;
    Layers         *source;
    const Progress *progress;
    int64_t         n_panels, done, total;  // done: numbers, of total
    Panel          *panels;
    int64_t         chunk;         // most numbers of a chunk
    size_t          panel_bytes;   // most of a panel
    int64_t         failed;        // lowest panel that failed
    Status          status;        // and how
    char            text[1024];
} Work;

/* What a thread needs. */
typedef struct {
    float   *w;           // [chunk]
    float   *importance;  // [chunk]
    uint8_t *stored;      // [panel_bytes]
} Buffers;

static int64_t panel_rows(const GgufItem *item)
{
    return i64_max(PANEL / item->k, 1);
}

static int64_t chunk_rows(const GgufItem *item)
{
    return i64_max(CHUNK / item->k, 1);
}

static Status list_panels(Work *w, Arena *a, const GgufItem *items, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += ceil_div(items[i].n, panel_rows(&items[i]));
    ARENA_NEW(w->panels, a, count);
    for (const GgufItem *item = items; item < items + n; item++) {
        int64_t rows = panel_rows(item);
        for (int64_t first = 0; first < item->n; first += rows) {
            Panel *p = &w->panels[w->n_panels++];
            *p = (Panel){.item = item, .first = first, .n = i64_min(rows, item->n - first)};
            p->place = item->place + (size_t)first * row_bytes(item);
            size_t bytes = (size_t)p->n * row_bytes(item) + GGUF_ALIGN;
            w->panel_bytes = bytes > w->panel_bytes ? bytes : w->panel_bytes;
        }
        w->chunk = i64_max(w->chunk, chunk_rows(item) * item->k);
        w->total += item->n * item->k;
    }
    return OK;
}

static Status take_buffers(Buffers *b, Arena *a, const Work *w)
{
    b->w = arena_raw(a, w->chunk, sizeof *b->w);
    b->importance = arena_raw(a, w->chunk, sizeof *b->importance);
    b->stored = arena_raw(a, (int64_t)w->panel_bytes, 1);
    if (!b->w || !b->importance || !b->stored)
        FAIL(ERR_MEMORY, "out of memory: %zu bytes to encode rows in", w->panel_bytes);
    return OK;
}

/* --- a chunk of rows --- */

/* Rotary dims j and j + d/2 of a head become neighbours, 2j and 2j + 1. */
static int64_t source_row(int64_t row, int64_t head_dim)
{
    int64_t head = row / head_dim, i = row % head_dim;
    return head * head_dim + i % 2 * (head_dim / 2) + i / 2;
}

static Status read_chunk(float *w, const Work *work, const GgufItem *item, int64_t first,
                         int64_t n)
{
    Layers *l = work->source;
    if (!item->source)
        memcpy(w, item->numbers + first * item->k, (size_t)(n * item->k) * sizeof *w);
    else if (!item->head_dim)
        return layers_take_rows(w, l, item->source, first, n);
    else
        for (int64_t i = 0; i < n; i++)
            TRY(layers_take_rows(w + i * item->k, l, item->source,
                                 source_row(first + i, item->head_dim), 1));
    return OK;
}

static void encode_chunk(uint8_t *out, const GgufItem *item, const float *w,
                         const float *importance, int64_t n)
{
    const int64_t K = item->k;
    if (!item->store.is_block)
        (void)halves_from_f32(out, item->store.dtype, w, n * K);
    else if (!item->importance)
        kquant_encode(out, item->store.block, w, NULL, n * K);
    else
        for (int64_t i = 0; i < n; i++)
            kquant_encode(out + (size_t)i * row_bytes(item), item->store.block, w + i * K,
                          importance, K);
}

/* What a reader of the file will have, against what there was. */
static void add_errors(RoundSums *sums, const uint8_t *stored, const GgufStore *s,
                       const float *w, int64_t n)
{
    for (int64_t at = 0; at < n; at += STEP) {
        float          back[STEP];
        int64_t        some = i64_min(STEP, n - at);
        const uint8_t *from = stored + gguf_store_bytes(s, at);
        if (s->is_block)
            block_decode(back, s->block, from, some);
        else
            (void)halves_to_f32(back, s->dtype, from, some);
        rounding_add(sums, w + at, back, some);
    }
}

/* --- a panel --- */

static Status encode_panel(Panel *p, const Work *w, const Buffers *b)
{
    const GgufItem *item = p->item;
    const int64_t   K = item->k, rows = chunk_rows(item);
    RoundSums       sums = {0};
    for (int64_t i = 0; item->importance && i < K; i++)
        b->importance[i] = (float)item->importance[i];
    for (int64_t row = 0; row < p->n; row += rows) {
        int64_t  n = i64_min(rows, p->n - row);
        uint8_t *out = b->stored + (size_t)row * row_bytes(item);
        TRY(read_chunk(b->w, w, item, p->first + row, n));
        encode_chunk(out, item, b->w, b->importance, n);
        add_errors(&sums, out, &item->store, b->w, n * K);
    }
    p->error = rounding_total(&sums);
    if (!isfinite(p->error.error2))
        FAIL(ERR_RANGE, "%s/%s: tensor %s has weights beyond what %s can hold: choose BF16 "
             "or F32", w->source->info.path, item->source->file, item->source->name,
             gguf_store_name(&item->store));
    return OK;
}

/* The last of a tensor with zeros up to the next. */
static Status write_panel(const Panel *p, const Work *w, const Buffers *b)
{
    size_t bytes = (size_t)p->n * row_bytes(p->item), pad = 0;
    if (p->first + p->n == p->item->n)
        pad = (GGUF_ALIGN - gguf_item_bytes(p->item) % GGUF_ALIGN) % GGUF_ALIGN;
    memset(b->stored + bytes, 0, pad);
    TRY(outfile_write_at(w->file, b->stored, bytes + pad, p->place));
    outfile_flush(w->file, bytes + pad, p->place);
    return OK;
}

static Status do_panel(Panel *p, const Work *w, const Buffers *b)
{
    const ModelTensor *source = p->item->source;
    if (source)
        layers_expect_rows(source, p->first, p->n);
    Status s = encode_panel(p, w, b);
    if (source)
        layers_release_rows(source, p->first, p->n);
    return s == OK ? write_panel(p, w, b) : s;
}

/* Sentences are kept by thread: that of the lowest panel goes to the caller's. */
static void note(Work *w, int64_t panel, Status s)
{
#pragma omp critical(gguf_note)
    if (s != OK && panel < w->failed) {
        w->failed = panel;
        w->status = s;
        snprintf(w->text, sizeof w->text, "%s", status_text());
    } else if (s == OK) {
        w->done += w->panels[panel].n * w->panels[panel].item->k;
        progress_step(w->progress, w->done, w->total, "gguf");
    }
}

static Status do_all(Work *w, const Buffers *buffers)
{
    w->failed = w->n_panels;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < w->n_panels; i++) {
        int64_t failed;
#pragma omp atomic read
        failed = w->failed;
        if (i < failed)
            note(w, i, do_panel(&w->panels[i], w, &buffers[omp_get_thread_num()]));
    }
    return w->failed < w->n_panels ? STATUS(w->status, "%s", w->text) : OK;
}

static Status write_items(OutFile *f, Arena *a, const GgufOptions *o, GgufItem *items,
                          int64_t n)
{
    Work     w = {.file = f, .source = o->source, .progress = o->progress};
    int      threads = omp_get_max_threads();
    Buffers *buffers;
    TRY(list_panels(&w, a, items, n));
    ARENA_NEW(buffers, a, threads);
    for (int t = 0; t < threads; t++)
        TRY(take_buffers(&buffers[t], a, &w));
    TRY(do_all(&w, buffers));
    for (int64_t i = 0; i < w.n_panels; i++) {
        RoundError *e = &items[w.panels[i].item - items].error;
        e->error2 += w.panels[i].error.error2;
        e->sum2 += w.panels[i].error.sum2;
    }
    return OK;
}

Status gguf_items_write(OutFile *f, Arena *a, const GgufOptions *o, GgufItem *items,
                        int64_t n)
{
    ArenaMark mark = arena_mark(a);
    Status    s = write_items(f, a, o, items, n);
    arena_rewind(a, mark);
    return s;
}
