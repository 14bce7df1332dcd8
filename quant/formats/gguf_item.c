/* gguf_item.c - the data of one tensor: read as f32, encoded, written, a piece of rows
 * at a time, so that memory does not grow with the matrix. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"
#include "quant/formats/gguf_parts.h"
#include "quant/methods/kquant.h"

enum { PIECE = 4 << 20, STEP = BLOCK_LARGE };  // numbers of a piece; decoded at once

size_t gguf_item_bytes(const GgufItem *item)
{
    return gguf_store_bytes(&item->store, item->n * item->k);
}

/* --- one row --- */

static void encode_row(void *out, const GgufStore *s, const float *w, const float *importance,
                       int64_t K)
{
    uint16_t *half = out;
    if (s->is_block)
        kquant_encode(out, s->block, w, importance, K);
    else if (s->dtype == DTYPE_F32)
        memcpy(out, w, (size_t)K * sizeof *w);
    else if (s->dtype == DTYPE_F16)
        for (int64_t i = 0; i < K; i++)
            half[i] = f16_from_f32(w[i]);
    else
        for (int64_t i = 0; i < K; i++)
            half[i] = bf16_from_f32(w[i]);
}

/* n numbers of a row, as a reader of the file will have them. */
static void decode_part(float *out, const GgufStore *s, const void *stored, int64_t n)
{
    const uint16_t *half = stored;
    if (s->is_block)
        block_decode(out, s->block, stored, n);
    else if (s->dtype == DTYPE_F32)
        memcpy(out, stored, (size_t)n * sizeof *out);
    else if (s->dtype == DTYPE_F16)
        for (int64_t i = 0; i < n; i++)
            out[i] = f16_to_f32(half[i]);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(half[i]);
}

static RoundError row_error(const uint8_t *stored, const GgufStore *s, const float *w,
                            int64_t K)
{
    RoundError e = {0};
    for (int64_t at = 0; at < K; at += STEP) {
        float   back[STEP];
        int64_t n = i64_min(STEP, K - at);
        decode_part(back, s, stored + gguf_store_bytes(s, at), n);
        for (int64_t i = 0; i < n; i++) {
            double d = (double)w[at + i] - back[i];
            e.error2 += d * d;
            e.sum2 += (double)w[at + i] * w[at + i];
        }
    }
    return e;
}

/* --- a piece of rows --- */

/* Rotary dims j and j + d/2 of a head become neighbours, 2j and 2j + 1. */
static int64_t source_row(int64_t row, int64_t head_dim)
{
    if (!head_dim)
        return row;
    int64_t head = row / head_dim, i = row % head_dim;
    return head * head_dim + i % 2 * (head_dim / 2) + i / 2;
}

/* Buffers of one tensor. */
typedef struct {
    int64_t     rows;        // of a whole piece
    float      *w;           // [rows,K] or the numbers given
    uint8_t    *stored;
    RoundError *errors;      // [rows]
    float      *importance;  // [K] or NULL
} Buffers;

static Status take_buffers(Buffers *b, Arena *a, const GgufItem *item)
{
    int64_t unit = item->head_dim ? item->head_dim : 1;  // heads are not cut
    int64_t rows = i64_max(PIECE / item->k / unit, 1) * unit;
    *b = (Buffers){.rows = item->is_vector ? item->n : i64_min(rows, item->n)};
    b->w = arena_raw(a, b->rows * item->k, sizeof *b->w);
    b->stored = arena_raw(a, b->rows, gguf_store_bytes(&item->store, item->k));
    b->errors = arena_alloc(a, b->rows, sizeof *b->errors);
    b->importance = item->importance ? arena_raw(a, item->k, sizeof *b->importance) : NULL;
    if (!b->w || !b->stored || !b->errors || (item->importance && !b->importance))
        FAIL(ERR_MEMORY, "out of memory: %lld rows of %s", (long long)b->rows, item->name);
    for (int64_t i = 0; item->importance && i < item->k; i++)
        b->importance[i] = (float)item->importance[i];
    return OK;
}

static Status read_piece(Buffers *b, Layers *l, const GgufItem *item, int64_t first, int64_t n)
{
    if (!item->source)
        memcpy(b->w, item->numbers + first * item->k, (size_t)(n * item->k) * sizeof *b->w);
    else if (item->is_vector)
        return layers_read_tensor(b->w, l, item->source);
    else
        return layers_read_rows(b->w, l, item->source, first, n);
    return OK;
}

/* Rows of b->w into b->stored; adds to e in the order of the rows. */
static void encode_piece(Buffers *b, const GgufItem *item, int64_t n, RoundError *e)
{
    const int64_t K = item->k;
    size_t        bytes = gguf_store_bytes(&item->store, K);
#pragma omp parallel for schedule(dynamic, 1) if (n * K > 4096)
    for (int64_t row = 0; row < n; row++) {
        const float *w = b->w + source_row(row, item->head_dim) * K;
        uint8_t     *out = b->stored + (size_t)row * bytes;
        encode_row(out, &item->store, w, b->importance, K);
        b->errors[row] = row_error(out, &item->store, w, K);
    }
    for (int64_t row = 0; row < n; row++) {
        e->error2 += b->errors[row].error2;
        e->sum2 += b->errors[row].sum2;
    }
}

static Status write_pieces(OutFile *f, Buffers *b, Layers *l, const GgufItem *item,
                           RoundError *e)
{
    size_t bytes = gguf_store_bytes(&item->store, item->k);
    for (int64_t row = 0; row < item->n; row += b->rows) {
        int64_t n = i64_min(b->rows, item->n - row);
        TRY(read_piece(b, l, item, row, n));
        encode_piece(b, item, n, e);
        if (!isfinite(e->error2))
            FAIL(ERR_RANGE, "%s/%s: tensor %s has weights beyond what %s can hold: choose BF16 "
                 "or F32", l->info.path, item->source->file, item->source->name,
                 gguf_store_name(&item->store));
        TRY(outfile_write(f, b->stored, (size_t)n * bytes));
    }
    return OK;
}

Status gguf_item_write(OutFile *f, Arena *a, Layers *l, const GgufItem *item, RoundError *e)
{
    ArenaMark mark = arena_mark(a);
    Buffers   b;
    Status    s;
    *e = (RoundError){0};
    GUARD(take_buffers(&b, a, item));
    GUARD(write_pieces(f, &b, l, item, e));
out:
    arena_rewind(a, mark);
    return s;
}
