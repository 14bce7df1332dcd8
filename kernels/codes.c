/* codes.c - codes back to weights, in plain C: the reference of the kernels. */
#include "kernels/codes.h"

#include <stddef.h>

/* Columns of one group, in the order of the codes. */
static void decode_group(float *w, const int8_t *codes, int64_t n, float scale,
                         const float *offset)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = scale * (float)codes[i];
    for (int64_t i = 0; offset && i < n; i++)
        w[i] += *offset;
}

/* The same where each column has its place in the row. */
static void scatter_group(float *row, const int8_t *codes, const int32_t *order, int64_t n,
                          float scale, const float *offset)
{
    for (int64_t i = 0; i < n; i++) {
        float w = scale * (float)codes[i];
        row[order[i]] = offset ? w + *offset : w;
    }
}

void codes_decode(float *w, const Codes *c, int64_t first, int64_t n)
{
    int64_t n_groups = c->k / c->group;
    for (int64_t row = first; row < first + n; row++, w += c->k)
        for (int64_t g = 0; g < n_groups; g++) {
            int64_t       at = row * n_groups + g, k = g * c->group;
            const int8_t *codes = c->codes + row * c->k + k;
            const float  *offset = c->offsets ? c->offsets + at : NULL;
            if (c->order)
                scatter_group(w, codes, c->order + k, c->group, c->scales[at], offset);
            else
                decode_group(w + k, codes, c->group, c->scales[at], offset);
        }
}
