/* cpu_codes.c - packing of codes into the panels of cpu_gemm.h.
 * shapes  codes [N,K] int8 of 4, 6 or 8 bits; groups of whole blocks of 16 or of
 *         whole rows; past N and K codes, scales and offsets are zero
 * memory  bits / 8 bytes a code, 4 a scale, 4 an offset, 8 an input if reordered
 * threads take a panel each
 * test    tests/kernels/test_linear_codes.c */
#include <string.h>

#include "kernels/cpu/cpu_gemm.h"
#include "kernels/size.h"

/* Eight bytes' lowest four bits next to each other. */
static uint32_t squeeze(uint64_t v)
{
    v &= 0x0f0f0f0f0f0f0f0fu;
    v = (v | v >> 4) & 0x00ff00ff00ff00ffu;
    v = (v | v >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(v | v >> 16);
}

static void pack_4(uint32_t *words, const int8_t codes[CODE_BLOCK])
{
    uint64_t eight[2];
    memcpy(eight, codes, sizeof eight);
    words[0] = squeeze(eight[0]);
    words[PANEL] = squeeze(eight[1]);
}

static void pack_6(uint32_t *words, const int8_t codes[CODE_BLOCK])
{
    for (int i = 0; i < 3; i++) {
        uint32_t word = (uint32_t)codes[15] >> (2 * i) << 30;
        for (int j = 0; j < 5; j++)
            word |= ((uint32_t)codes[5 * i + j] & 63) << (6 * j);
        words[i * PANEL] = word;
    }
}

static void pack_8(int8_t *bytes, const int8_t codes[CODE_BLOCK])
{
    for (int i = 0; i < CODE_BLOCK; i++)
        bytes[i * PANEL] = codes[i];
}

/* Codes of output n of a block. */
static void pack_codes(uint32_t *block, const int8_t codes[CODE_BLOCK], int bits, int64_t n)
{
    if (bits == 4)
        pack_4(block + n, codes);
    else if (bits == 6)
        pack_6(block + n, codes);
    else
        pack_8((int8_t *)block + n, codes);
}

static void pack_panel(uint32_t *block, const Codes *c, int64_t first, int64_t rows)
{
    for (int64_t k = 0; k < c->k; k += CODE_BLOCK, block += cpu_codes_block(c->bits))
        for (int64_t n = 0; n < rows; n++) {
            int8_t  rest[CODE_BLOCK] = {0};
            const int8_t *codes = c->codes + (first + n) * c->k + k;
            if (c->k - k < CODE_BLOCK)
                codes = memcpy(rest, codes, (size_t)(c->k - k));
            pack_codes(block, codes, c->bits, n);
        }
}

/* from [N, n_groups], rows first .. of it, to [n_groups, 64]. */
static void pack_groups(float *to, const float *from, int64_t n_groups, int64_t first,
                        int64_t rows)
{
    for (int64_t n = 0; n < rows; n++)
        for (int64_t g = 0; g < n_groups; g++)
            to[g * PANEL + n] = from[(first + n) * n_groups + g];
}

static Status alloc_order(Backend *be, CpuCodes *q, const Codes *c)
{
    int32_t *order, *column;
    ARENA_NEW(order, &be->arena, c->k);
    ARENA_NEW(column, &be->arena, c->k);
    for (int64_t i = 0; i < c->k; i++) {
        order[i] = c->order[i];
        column[order[i]] = (int32_t)i;
    }
    q->order = order;
    q->column = column;
    return OK;
}

/* Zeros, as the last panel may have rows of padding. */
static Status alloc_codes(Backend *be, CpuWeights *p, CpuCodes *q, const Codes *c)
{
    int64_t n_blocks = ceil_div(c->k, CODE_BLOCK);
    q->bits = c->bits;
    q->k = c->k;
    q->group = c->group;
    q->n_groups = c->k / c->group;
    q->panel_words = n_blocks * cpu_codes_block(c->bits);
    p->data = arena_alloc(&be->arena, p->n_panels, (size_t)q->panel_words * sizeof(uint32_t));
    size_t groups = (size_t)q->n_groups * PANEL * sizeof *q->scales;
    q->scales = arena_alloc(&be->arena, p->n_panels, groups);
    if (c->offsets)
        q->offsets = arena_alloc(&be->arena, p->n_panels, groups);
    if (!p->data || !q->scales || (c->offsets && !q->offsets))
        FAIL(ERR_MEMORY, "out of memory: weights [%lld,%lld] as codes of %d bits",
             (long long)c->n, (long long)c->k, c->bits);
    return c->order ? alloc_order(be, q, c) : OK;
}

Status cpu_linear_codes(Backend *be, Linear *out, const Codes *c, const float *bias)
{
    int64_t     step = out->dtype == DTYPE_BF16 ? 32 : 16;
    CpuWeights *p;
    CpuCodes   *q;
    ARENA_NEW(p, &be->arena, 1);
    ARENA_NEW(q, &be->arena, 1);
    p->n_panels = ceil_div(c->n, PANEL);
    p->k_pad = ceil_div(c->k, step) * step;
    p->codes = q;
    TRY(alloc_codes(be, p, q, c));
#pragma omp parallel for num_threads(cpu_threads(be, c->n * c->k))
    for (int64_t i = 0; i < p->n_panels; i++) {
        int64_t first = i * PANEL, rows = i64_min(PANEL, c->n - first);
        int64_t at = i * q->n_groups * PANEL;
        pack_panel((uint32_t *)p->data + i * q->panel_words, c, first, rows);
        pack_groups(q->scales + at, c->scales, q->n_groups, first, rows);
        if (c->offsets)
            pack_groups(q->offsets + at, c->offsets, q->n_groups, first, rows);
    }
    out->packed = p;
    return bias ? cpu_pack_bias(be, out, bias) : OK;
}
