/* cpu_attention_quant.c - scales of fake-quantized attention logits.
 * scale     max |x| / (2^(bits-1) - 1) over the allowed entries of a layer of
 *           one sequence (tensor), of each of its maps (head), or of each row; a
 *           noise map that heads share is one map
 * cost      a first pass of the same products, for the largest magnitudes
 * sums      none: a maximum has no order
 * NaN       NaN or infinity makes its whole scope NaN, never zeros: the scale
 *           of a NaN is NaN, and of an infinity 0 * inf
 * test      tests/kernels/test_logit_quant.c */
#include "kernels/cpu/cpu_attention.h"
#include "kernels/half.h"

float attn_code_limit(int bits)
{
    return (float)((1 << (bits - 1)) - 1);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void attn_absmax(const AttnCall *c, const AttnTile *t, AttnScratch *s)
{
    int64_t R = c->n_rows, end = tile_allowed(t, t->n_rows - 1, 0);
    attn_load_queries(c, t, s);
    for (int64_t r = 0; r < t->n_rows * R; r++)
        c->row_scale[call_row(c, t, r / R, r % R)] = 0;
    for (int64_t key = tile_first_key(c, t, 0); key < end; key += TILE_KEYS) {
        attn_logits(c, t, s, (TileRows){0, t->n_rows, 1}, key);
        for (int64_t r = 0; r < t->n_rows * R; r++) {
            float *max = &c->row_scale[call_row(c, t, r / R, r % R)];
            TileKeys k = tile_keys(c, t, r / R, key);
            uint32_t u = c->isa->absmax(s->x + r * TILE_KEYS + k.from,
                                        i64_max(k.end - k.from, 0));
            *max = f32_from_bits(larger(u, f32_bits(*max)));
        }
    }
}

/* Every step-th of n magnitudes becomes the scale of them all. The bits of
 * magnitudes are in order, with NaN above infinity. */
static void share_scale(float *x, int64_t n, int64_t step, float limit)
{
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i += step)
        max = larger(max, f32_bits(x[i]));
    for (int64_t i = 0; i < n; i += step)
        x[i] = f32_from_bits(max) / limit;
}

void attn_scales(const AttnCall *c)
{
    const Attention *a = c->a;
    int64_t maps = c->n_blocks * c->n_rows;
    float limit = attn_code_limit(a->logit_bits);
    for (int64_t b = 0; b < a->batch.n_sequences; b++) {
        float *x = c->row_scale + a->batch.start[b] * maps;
        int64_t n = (a->batch.start[b + 1] - a->batch.start[b]) * maps;
        if (a->logit_scale == SCALE_TENSOR)
            share_scale(x, n, 1, limit);
        else if (a->logit_scale == SCALE_HEAD)
            for (int64_t h = 0; h < maps; h++)
                share_scale(x + h, n - h, maps, limit);
        else
            for (int64_t i = 0; i < n; i++)
                x[i] /= limit;
    }
}
