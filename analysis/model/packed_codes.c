/* packed_codes.c - few-bit matrices to Codes, which the products take. */
#include "analysis/model/packed_parts.h"

#include <string.h>

#include "kernels/size.h"

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
        int64_t g = packed_group(p, k);
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
        float scale = packed_scale(p, n, g);
        scales[g] = scale;
        if (offsets)
            offsets[g] = -(scale * (float)packed_zero(p, n, g));
    }
}

static void fill_codes(int8_t *codes, const Packed *p, const int32_t *place, int64_t row)
{
    PackedCodes t = {.row = row, .rows = i64_min(PACKED_TILE, p->n - row)};
    for (t.col = 0; t.col < p->k; t.col += t.cols) {
        t.cols = i64_min(PACKED_COLS, p->k - t.col);
        packed_tile(&t, p);
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
    for (int64_t row = 0; row < p->n; row += PACKED_TILE) {
        if (p->kind != PACKED_BLOCKS)
            fill_codes(codes, p, place, row);
        for (int64_t r = row; r < i64_min(p->n, row + PACKED_TILE); r++) {
            float *o = offsets ? offsets + r * G : NULL;
            if (p->kind == PACKED_BLOCKS)
                block_codes(codes + r * p->k, scales + r * G, o, p->block,
                            packed_file_row(p, r), p->k);
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
