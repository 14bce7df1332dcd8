/* packed_check.c - what scales and codes of few-bit matrices must be to be decoded. */
#include "analysis/model/packed_parts.h"

#include <math.h>
#include <stdio.h>

#include "kernels/codes.h"
#include "kernels/size.h"

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
    const unsigned char *at = packed_file_row(p, n);
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

/* A byte has room for more than codes of less than 8 bits. */
static Status check_bytes(const Packed *p, const char *path)
{
    const int8_t *codes = p->data;
    int           low = -(1 << (p->bits - 1)), high = -low - 1;
    int64_t       n = p->n * p->k, bad = n;
#pragma omp parallel for schedule(static) reduction(min : bad)
    for (int64_t i = 0; i < n; i++)
        bad = codes[i] < low || codes[i] > high ? i64_min(bad, i) : bad;
    if (bad < n)
        FAIL(ERR_RANGE, "%s/%s: tensor %s[%lld,%lld] is %d, expected a code of %d bits, %d to "
             "%d", path, p->codes->file, p->codes->name, (long long)(bad / p->k),
             (long long)(bad % p->k), codes[bad], p->bits, low, high);
    return OK;
}

Status packed_check(const Packed *p, const char *path)
{
    if (p->kind == PACKED_BLOCKS)
        return check_blocks(p, path);
    int64_t n_scales = p->scales ? tensor_count(&p->scales->view) : 0;
    for (int64_t i = 0; i < n_scales; i++) {
        float x = packed_float(&p->scales->view, i);
        if (!(fabsf(x) <= CODES_MOST_SCALE))
            return wrong_scale(p, path, i, x);
    }
    return p->kind == PACKED_BYTES && p->bits < 8 ? check_bytes(p, path) : OK;
}
