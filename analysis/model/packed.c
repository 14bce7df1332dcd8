/* packed.c - few-bit matrices to numbers, tile by tile. */
#include "analysis/model/packed_parts.h"

#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"

enum {
    WORD = 32,
    FEW_GROUPS = 256  // scales of a row that are looked up once a tile
};

/* --- single numbers --- */

static uint32_t packed_word(const void *words, int64_t i)
{
    uint32_t u;
    memcpy(&u, (const unsigned char *)words + 4 * i, sizeof u);
    return u;
}

float packed_float(const Tensor *t, int64_t i)
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

float packed_scale(const Packed *p, int64_t n, int64_t g)
{
    return packed_float(&p->scales->view, scale_place(p, n, g));
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
    uint64_t    u = packed_word(words, at) + less;
    if (shift + p->bits > WORD)
        u |= (uint64_t)packed_word(words, at + stride) << WORD;
    return ((unsigned)(u >> shift) + (whole ? 0 : (unsigned)p->zeros_less)) & mask;
}

/* Zero point as a code, as codes are in Codes. */
int packed_zero(const Packed *p, int64_t n, int64_t g)
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

int64_t packed_group(const Packed *p, int64_t k)
{
    return p->index ? (int32_t)packed_word(p->index->view.data, k) : k / p->group;
}

/* Row n as it lies in the file. GGUF's llama has the rows of q and k that turn together
 * side by side, formats.md 4.3. */
const unsigned char *packed_file_row(const Packed *p, int64_t n)
{
    int64_t d = p->paired_heads ? p->n / p->paired_heads : 1, i = n % d;
    int64_t row = d == 1 ? n : n - i + i % (d / 2) * 2 + i / (d / 2);
    return (const unsigned char *)p->data + (size_t)row * (p->bytes / (size_t)p->n);
}

/* --- tiles of codes --- */

/* Codes of GPTQ: word r of output n holds inputs 32 r / b ..., one under another. */
static void tile_columns(PackedCodes *t, const Packed *p)
{
    unsigned mask = (1u << p->bits) - 1;
    int      half = 1 << (p->bits - 1);
    for (int64_t j = 0; j < t->cols; j++) {
        int64_t bit = (t->col + j) * p->bits, word = bit / WORD * p->n + t->row;
        int     shift = (int)(bit % WORD);
        int64_t next = shift + p->bits > WORD ? p->n : 0;
        for (int64_t r = 0; r < t->rows; r++) {
            uint64_t u = packed_word(p->data, word + r) |
                         (uint64_t)packed_word(p->data, word + next + r) << WORD;
            t->codes[r * t->cols + j] = (int8_t)((int)((unsigned)(u >> shift) & mask) - half);
        }
    }
}

void packed_tile(PackedCodes *t, const Packed *p)
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
        int64_t g = packed_group(p, col + j);
        float   scale = packed_scale(p, n, g);
        int     zero = packed_zero(p, n, g);
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
        scale[g] = packed_scale(p, n, g);
        zero[g] = packed_zero(p, n, g);
    }
    for (int64_t i = 0; i < cols; i++) {
        int64_t g = packed_group(p, col + i);
        out[i] = scale[g] * (float)(codes[i] - zero[g]);
    }
}

/* --- rows of blocks, and of numbers whose order is GGUF's --- */

static bool has_rows(const Packed *p)
{
    return p->kind == PACKED_BLOCKS || p->kind == PACKED_NUMBERS;
}

static void decode_row(float *out, const Packed *p, int64_t n)
{
    const unsigned char *row = packed_file_row(p, n);
    if (p->kind == PACKED_BLOCKS) {
        block_decode(out, p->block, row, p->k);
        return;
    }
    Tensor t = tensor_1d(p->dtype, (void *)(uintptr_t)row, p->k);
    for (int64_t k = 0; k < p->k; k++)
        out[k] = packed_float(&t, k);
}

void packed_rows(float *out, const Packed *p, int64_t first, int64_t n)
{
    bool indexed = p->index && p->n_groups <= FEW_GROUPS;
    PackedCodes t;
    if (has_rows(p)) {
        for (int64_t r = 0; r < n; r++)
            decode_row(out + r * p->k, p, first + r);
        return;
    }
    for (t.row = first; t.row < first + n; t.row += t.rows) {
        t.rows = i64_min(PACKED_TILE, first + n - t.row);
        for (t.col = 0; t.col < p->k; t.col += t.cols) {
            t.cols = i64_min(PACKED_COLS, p->k - t.col);
            packed_tile(&t, p);
            for (int64_t r = 0; r < t.rows; r++)
                (indexed ? decode_indexed : decode_run)(
                    out + (t.row - first + r) * p->k + t.col, p, t.row + r, t.col, t.cols,
                    t.codes + r * t.cols);
        }
    }
}
