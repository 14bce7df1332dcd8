/* packed.c - few-bit matrices to numbers and to Codes, tile by tile.
 * A tile is some rows by some inputs of codes; its first input begins a word in
 * every layout of every width. */
#include "analysis/model/packed.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"

enum {
    ROWS = PACKED_TILE,
    COLS = 960,  // a multiple of 480: of 32 codes and of 32/b codes, b = 1 to 8
    WORD = 32,
    FEW_GROUPS = 256  // scales of a row that are looked up once a tile
};

/* --- single numbers; nothing in the file need be aligned --- */

static uint32_t word_at(const void *words, int64_t i)
{
    uint32_t u;
    memcpy(&u, (const unsigned char *)words + 4 * i, sizeof u);
    return u;
}

static float float_at(const Tensor *t, int64_t i)
{
    const unsigned char *at = (const unsigned char *)t->data + (size_t)i * dtype_size(t->dtype);
    uint16_t             half;
    float                x;
    if (t->dtype == DTYPE_F32) {
        memcpy(&x, at, sizeof x);
        return x;
    }
    memcpy(&half, at, sizeof half);
    return t->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static int64_t scale_place(const Packed *p, int64_t n, int64_t g)
{
    if (p->one_scale)
        return 0;
    return p->kind == PACKED_COLUMNS ? g * p->n + n : n * p->n_groups + g;
}

static float scale_of(const Packed *p, int64_t n, int64_t g)
{
    return float_at(&p->scales->view, scale_place(p, n, g));
}

/* Field i of words that lie stride words apart, from words[first] on, unsigned.
 * GPTQ v1 stores zero points less one: one was taken from whole words, and a zero
 * point of 0 has borrowed from its neighbour, so one is added to whole words too,
 * as gptqmodel does. (3 bits straddle words: there it works field by field.) */
static unsigned zero_field(const Packed *p, int64_t first, int64_t stride, int64_t i)
{
    const void *words = p->zeros->view.data;
    unsigned    mask = (1u << p->bits) - 1;
    bool        whole = WORD % p->bits == 0;
    int64_t     bit = p->layout == PACK_DENSE ? i * p->bits
                                              : i / (WORD / p->bits) * WORD +
                                                    i % (WORD / p->bits) * p->bits;
    int64_t     at = first + bit / WORD * stride;
    int         shift = (int)(bit % WORD);
    uint32_t    less = whole ? UINT32_MAX / mask * (uint32_t)p->zeros_less : 0;
    uint64_t    u = word_at(words, at) + less;
    if (shift + p->bits > WORD)
        u |= (uint64_t)word_at(words, at + stride) << WORD;
    return ((unsigned)(u >> shift) + (whole ? 0 : (unsigned)p->zeros_less)) & mask;
}

/* Zero point as a code, as codes are in Codes. */
static int zero_of(const Packed *p, int64_t n, int64_t g)
{
    int     half = 1 << (p->bits - 1);
    int64_t along = packbits_words(p->layout, p->bits, p->n);
    switch (p->zeros_as) {
    case ZEROS_DOWN:
        return (int)zero_field(p, g, p->n_groups, n) - half;
    case ZEROS_ALONG:
        return (int)zero_field(p, g * along, 1, n) - half;
    case ZEROS_BYTES:
        return ((const int8_t *)p->zeros->view.data)[scale_place(p, n, g)];
    default:
        return 0;
    }
}

static int64_t group_of(const Packed *p, int64_t k)
{
    return p->index ? (int32_t)word_at(p->index->view.data, k) : k / p->group;
}

/* --- tiles of codes --- */

typedef struct {
    int64_t row, rows, col, cols;
    int8_t  codes[ROWS * COLS];  // [rows,cols]
} Tile;

/* Codes of GPTQ: word r of output n holds inputs 32 r / b ..., one under another. */
static void tile_columns(Tile *t, const Packed *p)
{
    unsigned mask = (1u << p->bits) - 1;
    int      half = 1 << (p->bits - 1);
    for (int64_t j = 0; j < t->cols; j++) {
        int64_t bit = (t->col + j) * p->bits, word = bit / WORD * p->n + t->row;
        int     shift = (int)(bit % WORD);
        int64_t next = shift + p->bits > WORD ? p->n : 0;
        for (int64_t r = 0; r < t->rows; r++) {
            uint64_t u = word_at(p->data, word + r) |
                         (uint64_t)word_at(p->data, word + next + r) << WORD;
            t->codes[r * t->cols + j] = (int8_t)((int)((unsigned)(u >> shift) & mask) - half);
        }
    }
}

static void tile_read(Tile *t, const Packed *p)
{
    const unsigned char *data = p->data;
    int64_t              words = packbits_words(p->layout, p->bits, p->k);
    int64_t              first = packbits_words(p->layout, p->bits, t->col);
    if (p->kind == PACKED_COLUMNS) {
        tile_columns(t, p);
        return;
    }
    for (int64_t r = 0; r < t->rows; r++)
        if (p->kind == PACKED_BYTES)
            memcpy(t->codes + r * t->cols, data + (t->row + r) * p->k + t->col,
                   (size_t)t->cols);
        else
            packbits_unpack_rows(t->codes + r * t->cols,
                                 data + 4 * ((t->row + r) * words + first), 1, t->cols,
                                 p->layout, p->bits);
}

/* --- to numbers --- */

/* Inputs of row n from col on: scale * (code - zero). The difference is exact, so
 * that each number is rounded once. */
static void decode_run(float *out, const Packed *p, int64_t n, int64_t col, int64_t cols,
                       const int8_t *codes)
{
    for (int64_t j = 0, end; j < cols; j = end) {
        int64_t g = group_of(p, col + j);
        float   scale = scale_of(p, n, g);
        int     zero = zero_of(p, n, g);
        end = p->index ? j + 1 : i64_min(cols, (g + 1) * p->group - col);
        for (int64_t i = j; i < end; i++)
            out[i] = scale * (float)(codes[i] - zero);
    }
}

/* The same where neighbours are of different groups. */
static void decode_indexed(float *out, const Packed *p, int64_t n, int64_t col, int64_t cols,
                           const int8_t *codes)
{
    float scale[FEW_GROUPS];
    int   zero[FEW_GROUPS];
    for (int64_t g = 0; g < p->n_groups; g++) {
        scale[g] = scale_of(p, n, g);
        zero[g] = zero_of(p, n, g);
    }
    for (int64_t i = 0; i < cols; i++) {
        int64_t g = group_of(p, col + i);
        out[i] = scale[g] * (float)(codes[i] - zero[g]);
    }
}

/* --- rows of blocks, and of numbers whose order is GGUF's --- */

static bool has_rows(const Packed *p)
{
    return p->kind == PACKED_BLOCKS || p->kind == PACKED_NUMBERS;
}

/* Row n as it lies in the file. GGUF's llama has the rows of q and k that turn together
 * side by side, formats.md 4.3. */
static const unsigned char *file_row(const Packed *p, int64_t n)
{
    int64_t d = p->paired_heads ? p->n / p->paired_heads : 1, i = n % d;
    int64_t row = d == 1 ? n : n - i + i % (d / 2) * 2 + i / (d / 2);
    return (const unsigned char *)p->data + (size_t)row * (p->bytes / (size_t)p->n);
}

static void decode_row(float *out, const Packed *p, int64_t n)
{
    const unsigned char *row = file_row(p, n);
    if (p->kind == PACKED_BLOCKS) {
        block_decode(out, p->block, row, p->k);
        return;
    }
    Tensor t = tensor_1d(p->dtype, (void *)(uintptr_t)row, p->k);
    for (int64_t k = 0; k < p->k; k++)
        out[k] = float_at(&t, k);
}

void packed_rows(float *out, const Packed *p, int64_t first, int64_t n)
{
    bool indexed = p->index && p->n_groups <= FEW_GROUPS;
    Tile t;
    if (has_rows(p)) {
        for (int64_t r = 0; r < n; r++)
            decode_row(out + r * p->k, p, first + r);
        return;
    }
    for (t.row = first; t.row < first + n; t.row += t.rows) {
        t.rows = i64_min(ROWS, first + n - t.row);
        for (t.col = 0; t.col < p->k; t.col += t.cols) {
            t.cols = i64_min(COLS, p->k - t.col);
            tile_read(&t, p);
            for (int64_t r = 0; r < t.rows; r++)
                (indexed ? decode_indexed : decode_run)(
                    out + (t.row - first + r) * p->k + t.col, p, t.row + r, t.col, t.cols,
                    t.codes + r * t.cols);
        }
    }
}

/* --- to Codes --- */

static int codes_bits(const Packed *p)
{
    if (p->kind == PACKED_BLOCKS)
        return block_info(p->block)->bits;
    return p->bits <= 4 ? 4 : p->bits <= 6 ? 6 : 8;
}

static int64_t codes_group(const Packed *p)
{
    return p->kind == PACKED_BLOCKS ? block_info(p->block)->group : p->group;
}

static bool has_offsets(const Packed *p)
{
    return p->kind == PACKED_BLOCKS ? block_info(p->block)->offsets
                                    : p->zeros_as != ZEROS_NONE;
}

bool packed_has_codes(const Packed *p)
{
    if (p->kind == PACKED_NUMBERS)
        return false;
    int64_t group = codes_group(p);
    return p->k % group == 0 && (group == p->k || group % 16 == 0);
}

/* Inputs by group, order within a group kept: place[k] is where input k goes.
 * NULL in *order where groups differ in size. */
static Status sort_inputs(int32_t **order, int32_t **place, Arena *a, const Packed *p)
{
    int64_t *filled;
    ARENA_NEW(*order, a, p->k);
    ARENA_NEW(*place, a, p->k);
    ARENA_NEW(filled, a, p->n_groups);
    for (int64_t k = 0; k < p->k; k++) {
        int64_t g = group_of(p, k);
        if (filled[g] == p->group) {
            *order = NULL;
            return OK;
        }
        (*place)[k] = (int32_t)(g * p->group + filled[g]++);
        (*order)[(*place)[k]] = (int32_t)k;
    }
    return OK;
}

static void fill_scales(float *scales, float *offsets, const Packed *p, int64_t n)
{
    for (int64_t g = 0; g < p->n_groups; g++) {
        float scale = scale_of(p, n, g);
        scales[g] = scale;
        if (offsets)
            offsets[g] = -(scale * (float)zero_of(p, n, g));
    }
}

static void fill_codes(int8_t *codes, const Packed *p, const int32_t *place, int64_t row)
{
    Tile t = {.row = row, .rows = i64_min(ROWS, p->n - row)};
    for (t.col = 0; t.col < p->k; t.col += t.cols) {
        t.cols = i64_min(COLS, p->k - t.col);
        tile_read(&t, p);
        for (int64_t r = 0; r < t.rows; r++) {
            const int8_t *from = t.codes + r * t.cols;
            int8_t       *to = codes + (row + r) * p->k;
            if (!place)
                memcpy(to + t.col, from, (size_t)t.cols);
            for (int64_t j = 0; place && j < t.cols; j++)
                to[place[t.col + j]] = from[j];
        }
    }
}

/* GPTQ has zero points for symmetric codes too: all in the middle. */
static bool all_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

static void fill_rows(Codes *c, int8_t *codes, float *scales, float *offsets, const Packed *p,
                      const int32_t *place)
{
    int64_t G = c->k / c->group;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < p->n; row += ROWS) {
        if (p->kind != PACKED_BLOCKS)
            fill_codes(codes, p, place, row);
        for (int64_t r = row; r < i64_min(p->n, row + ROWS); r++) {
            float *o = offsets ? offsets + r * G : NULL;
            if (p->kind == PACKED_BLOCKS)
                block_codes(codes + r * p->k, scales + r * G, o, p->block, file_row(p, r),
                            p->k);
            else
                fill_scales(scales + r * G, o, p, r);
        }
    }
}

Status packed_codes(Codes *out, Arena *a, const Packed *p)
{
    int64_t  n = p->n * (p->k / codes_group(p));
    int8_t  *codes = arena_raw(a, p->n * p->k, sizeof *codes);
    float   *scales = arena_raw(a, n, sizeof *scales);
    float   *offsets = has_offsets(p) ? arena_raw(a, n, sizeof *offsets) : NULL;
    int32_t *order = NULL, *place = NULL;
    if (!codes || !scales || (!offsets && has_offsets(p)))
        FAIL(ERR_MEMORY, "out of memory: codes of a matrix of %lld x %lld", (long long)p->n,
             (long long)p->k);
    *out = (Codes){.n = p->n, .k = p->k, .bits = codes_bits(p), .group = codes_group(p)};
    if (p->index) {
        TRY(sort_inputs(&order, &place, a, p));
        if (!order)
            return OK;
    }
    fill_rows(out, codes, scales, offsets, p, place);
    out->codes = codes;
    out->scales = scales;
    out->offsets = offsets && !all_zero(offsets, n) ? offsets : NULL;
    out->order = order;
    return OK;
}

size_t packed_loaded_bytes(const Packed *p)
{
    if (p->kind == PACKED_NUMBERS)
        return (size_t)(p->n * p->k) * sizeof(float);
    return (size_t)(p->n * p->k) * (size_t)codes_bits(p) / 8 +
           (size_t)(p->n * ceil_div(p->k, codes_group(p))) * (has_offsets(p) ? 8 : 4);
}

/* --- what the numbers must be --- */

static Status wrong_scale(const Packed *p, const char *path, int64_t i, float x)
{
    const ModelTensor *t = p->scales;
    char               place[64];
    if (t->view.n_dims == 2)
        snprintf(place, sizeof place, "[%lld,%lld]", (long long)(i / t->view.shape[1]),
                 (long long)(i % t->view.shape[1]));
    else
        snprintf(place, sizeof place, "[%lld]", (long long)i);
    FAIL(ERR_RANGE, "%s/%s: tensor %s%s is %g, expected a number whose products with codes "
         "are finite", path, t->file, t->name, place, (double)x);
}

/* Products of finite scales in blocks fit f32: f16 times 8 or 6 bits times 8. */
static bool row_is_finite(const Packed *p, int64_t n)
{
    const BlockInfo     *b = block_info(p->block);
    const unsigned char *at = file_row(p, n);
    int8_t               codes[BLOCK_LARGE];
    float                x[2][BLOCK_LARGE / 16] = {{0}};  // scales, offsets
    for (int64_t k = 0; k < p->k; k += b->items, at += b->bytes) {
        block_codes(codes, x[0], x[1], p->block, at, b->items);
        for (int g = 0; g < b->items / b->group; g++)
            if (!isfinite(x[0][g]) || !isfinite(x[1][g]))
                return false;
    }
    return true;
}

static Status check_blocks(const Packed *p, const char *path)
{
    int64_t bad = p->n;
#pragma omp parallel for schedule(static) reduction(min : bad)
    for (int64_t n = 0; n < p->n; n++)
        if (!row_is_finite(p, n))
            bad = i64_min(bad, n);
    if (bad < p->n)
        FAIL(ERR_RANGE, "%s/%s: tensor %s: row %lld has a scale that is NaN or infinite, "
             "expected finite ones", path, p->codes->file, p->codes->name, (long long)bad);
    return OK;
}

Status packed_check(const Packed *p, const char *path)
{
    if (p->kind == PACKED_BLOCKS)
        return check_blocks(p, path);
    int64_t n_scales = p->scales ? tensor_count(&p->scales->view) : 0;
    for (int64_t i = 0; i < n_scales; i++) {
        float x = float_at(&p->scales->view, i);
        if (!(fabsf(x) <= FLT_MAX / 512))  // codes and zero points differ by less
            return wrong_scale(p, path, i, x);
    }
    return OK;
}
