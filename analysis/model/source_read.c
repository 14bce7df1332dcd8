/* source_read.c - weights from the mapped file to finite f32. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/model/packed.h"
#include "analysis/model/source.h"
#include "kernels/half.h"
#include "kernels/halves.h"
#include "kernels/size.h"

enum { CHUNK = 16384 };  // items converted at once

/* First of x[0..n) that is NaN or infinite, n if none is. */
static int64_t first_not_finite(const float *x, int64_t n)
{
    int any = 0;
    for (int64_t i = 0; i < n; i++)
        any |= (f32_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
    if (!any)
        return n;
    int64_t i = 0;
    while (isfinite(x[i]))
        i++;
    return i;
}

static Status not_finite(const Source *s, const ModelTensor *t, int64_t i, float x)
{
    char    place[64];
    int64_t cols = t->view.n_dims == 2 ? t->view.shape[1] : 0;
    if (cols)
        snprintf(place, sizeof place, "[%lld,%lld]", (long long)(i / cols),
                 (long long)(i % cols));
    else
        snprintf(place, sizeof place, "[%lld]", (long long)i);
    FAIL(ERR_RANGE, "%s/%s: tensor %s%s is %s, expected a finite number", s->folder, t->file,
         t->name, place, isnan(x) ? "NaN" : x > 0 ? "inf" : "-inf");
}

/* Rows first .. first + n of a matrix of few bits. */
static Status read_packed(float *out, const Source *s, const ModelTensor *t, int64_t first,
                          int64_t n)
{
    int64_t K = t->packed->k, bad = n * K;
#pragma omp parallel for schedule(static) reduction(min : bad) if (n * K > 16 * CHUNK)
    for (int64_t row = 0; row < n; row += PACKED_TILE) {
        int64_t rows = i64_min(PACKED_TILE, n - row);
        packed_rows(out + row * K, t->packed, first + row, rows);
        int64_t wrong = first_not_finite(out + row * K, rows * K);
        if (wrong < rows * K)
            bad = i64_min(bad, row * K + wrong);
    }
    return bad < n * K ? not_finite(s, t, first * K + bad, out[bad]) : OK;
}

/* Of codes; of GGUF's kinds p->codes is what they decode to. */
static size_t data_bytes(const Packed *p)
{
    bool alone = p->kind == PACKED_BLOCKS || p->kind == PACKED_NUMBERS;
    return alone ? p->bytes : tensor_bytes(&p->codes->view);
}

/* Codes of the whole matrix, whose pages have been expected, are of no more use. */
static void expect_packed(const Packed *p)
{
    filemap_expect(p->data, data_bytes(p));
}

static void release_packed(const Packed *p)
{
    filemap_release(p->data, data_bytes(p));
}

static const char *item_place(const ModelTensor *t, int64_t first)
{
    return (const char *)t->view.data + (size_t)first * dtype_size(t->view.dtype);
}

/* Items first .. first + n of t in the calling thread; first of them that is not finite. */
static int64_t convert(float *out, const ModelTensor *t, int64_t first, int64_t n)
{
    return halves_to_f32(out, t->view.dtype, item_place(t, first), n) ? n
           : first_not_finite(out, n);
}

/* Items first .. first + n of t, whose pages of the file are then given back. */
static Status read_items(float *out, const Source *s, const ModelTensor *t, int64_t first,
                         int64_t n)
{
    int64_t bad = n;
    size_t  bytes = (size_t)n * dtype_size(t->view.dtype);
    filemap_expect(item_place(t, first), bytes);
#pragma omp parallel for schedule(static) reduction(min : bad) if (n > 16 * CHUNK)
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t part = i64_min(CHUNK, n - at);
        int64_t wrong = convert(out + at, t, first + at, part);
        if (wrong < part)
            bad = i64_min(bad, at + wrong);
    }
    filemap_release(item_place(t, first), bytes);
    return bad < n ? not_finite(s, t, first + bad, out[bad]) : OK;
}

Status source_read(float *out, const Source *s, const ModelTensor *t)
{
    if (!t->packed)
        return read_items(out, s, t, 0, tensor_count(&t->view));
    TRY(source_begin(s, t));
    Status status = read_packed(out, s, t, 0, t->view.shape[0]);
    source_end(t);
    return status;
}

Status source_read_rows(float *out, const Source *s, const ModelTensor *t, int64_t first,
                        int64_t n)
{
    int64_t cols = t->view.shape[1];
    CHECK(t->view.n_dims == 2 && first >= 0 && n >= 0 && n <= t->view.shape[0] - first);
    if (t->packed)
        return read_packed(out, s, t, first, n);
    return read_items(out, s, t, first * cols, n * cols);
}

static int64_t cols_of(const ModelTensor *t)
{
    return t->view.n_dims == 2 ? t->view.shape[1] : 1;
}

Status source_take_rows(float *out, const Source *s, const ModelTensor *t, int64_t first,
                        int64_t n)
{
    int64_t cols = cols_of(t);
    CHECK(t->view.n_dims <= 2 && first >= 0 && n >= 0 && n <= t->view.shape[0] - first);
    if (t->packed)
        return read_packed(out, s, t, first, n);
    int64_t bad = convert(out, t, first * cols, n * cols);
    return bad < n * cols ? not_finite(s, t, first * cols + bad, out[bad]) : OK;
}

void source_expect_rows(const ModelTensor *t, int64_t first, int64_t n)
{
    if (!t->packed)
        filemap_expect(item_place(t, first * cols_of(t)),
                       (size_t)(n * cols_of(t)) * dtype_size(t->view.dtype));
}

void source_release_rows(const ModelTensor *t, int64_t first, int64_t n)
{
    if (!t->packed)
        filemap_release(item_place(t, first * cols_of(t)),
                        (size_t)(n * cols_of(t)) * dtype_size(t->view.dtype));
}

Status source_begin(const Source *s, const ModelTensor *t)
{
    if (!t->packed) {
        source_expect_rows(t, 0, t->view.shape[0]);
        return OK;
    }
    TRY(packed_check(t->packed, s->folder));
    expect_packed(t->packed);
    return OK;
}

void source_end(const ModelTensor *t)
{
    if (t->packed)
        release_packed(t->packed);
    else
        source_release_rows(t, 0, t->view.shape[0]);
}

Tensor source_matrix_shape(const ModelTensor *t)
{
    const int64_t *shape = t->view.shape;
    return t->transposed ? tensor_2d(DTYPE_F32, NULL, shape[1], shape[0])
                         : tensor_2d(DTYPE_F32, NULL, shape[0], shape[1]);
}

/* out [cols,rows] of x [rows,cols], a block at a time. */
static void transpose(float *out, const float *x, int64_t rows, int64_t cols)
{
    enum { BLOCK = 32 };
#pragma omp parallel for schedule(static)
    for (int64_t c0 = 0; c0 < cols; c0 += BLOCK)
        for (int64_t r0 = 0; r0 < rows; r0 += BLOCK)
            for (int64_t c = c0; c < i64_min(c0 + BLOCK, cols); c++)
                for (int64_t r = r0; r < i64_min(r0 + BLOCK, rows); r++)
                    out[c * rows + r] = x[r * cols + c];
}

Status source_read_matrix(float *out, Arena *scratch, const Source *s, const ModelTensor *t)
{
    ArenaMark mark = arena_mark(scratch);
    float    *stored;
    if (!t->transposed)
        return source_read(out, s, t);
    stored = arena_raw(scratch, tensor_count(&t->view), sizeof *stored);
    if (!stored)
        FAIL(ERR_MEMORY, "out of memory: tensor %s", t->name);
    TRY(source_read(stored, s, t));
    transpose(out, stored, t->view.shape[0], t->view.shape[1]);
    arena_rewind(scratch, mark);
    return OK;
}

Status source_codes(Codes *out, Arena *a, const Source *s, const ModelTensor *t)
{
    *out = (Codes){0};
    if (!t->packed || !packed_has_codes(t->packed))
        return OK;
    TRY(packed_check(t->packed, s->folder));
    expect_packed(t->packed);
    Status status = packed_codes(out, a, t->packed);
    release_packed(t->packed);
    return status;
}

double source_lambda_init(const Source *s, int64_t layer)
{
    return diff_lambda_init(layer + s->config.arch->lambda_shift);
}

Status source_lambda(double *out, Arena *scratch, const Source *s, int64_t layer)
{
    int64_t   d = s->config.keys.head_dim;
    ArenaMark mark = arena_mark(scratch);
    float    *v;
    ARENA_NEW(v, scratch, 4 * d);
    for (int i = 0; i < 4; i++)
        TRY(source_read(v + i * d, s,
                        source_tensor(s, layer, (TensorRole)(ROLE_LAMBDA_Q1 + i))));
    *out = diff_lambda(v, v + d, v + 2 * d, v + 3 * d, d, source_lambda_init(s, layer));
    arena_rewind(scratch, mark);
    if (!isfinite((float)*out))
        FAIL(ERR_RANGE, "%s: lambda of layer %lld is %g, expected a finite number", s->path,
             (long long)layer, *out);
    return OK;
}
