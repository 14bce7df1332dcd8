/* kquant.c - encoders of the block formats of 256 weights, and the way in.
 * A super-block has groups with scales of their own, which are in turn whole
 * numbers of few bits times one f16: fit the groups, round their scales, then round
 * the weights again to what is stored. */
#include "quant/methods/kquant.h"

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "quant/methods/kquant_parts.h"
#include "quant/methods/kquant_search.h"

enum { N = BLOCK_LARGE, GROUP = 32, GROUPS = 8, TOP_SCALE = 63 };

/* --- Q4_K and Q5_K: w = d * scale * q - dmin * min --- */

/* The numbers of a super-block, before they are laid out. */
typedef struct {
    uint16_t d, dmin;
    uint8_t  scales[GROUPS], mins[GROUPS];  // 6 bits
    uint8_t  q[N];
} Super;

/* w of a group; returns their sum. */
static float group_weights(float *w, const float *x, const float *importance, float sigma2)
{
    float sum = 0;
    if (importance) {
        for (int i = 0; i < GROUP; i++)
            w[i] = importance[i] * sqrtf(sigma2 + x[i] * x[i]);
    } else {
        float sum2 = 0;
        for (int i = 0; i < GROUP; i++)
            sum2 += x[i] * x[i];
        float root = sqrtf(sum2 / GROUP);
        for (int i = 0; i < GROUP; i++)
            w[i] = root + fabsf(x[i]);
    }
    for (int i = 0; i < GROUP; i++)
        sum += w[i];
    return sum;
}

/* Eight positive scales as 6 bits times the f16 returned, by their range. */
static uint16_t scales_by_range(uint8_t *out, const float *scales)
{
    float max = 0;
    for (int g = 0; g < GROUPS; g++)
        max = scales[g] > max ? scales[g] : max;
    float inverse = max > 0 ? TOP_SCALE / max : 0;
    for (int g = 0; g < GROUPS; g++)
        out[g] = (uint8_t)kquant_clamp(kquant_nearest(inverse * scales[g]), 0, TOP_SCALE);
    return f16_from_f32(max / TOP_SCALE);
}

/* Codes once more, for what is stored; those of a group without scale stay. */
static void requantize(Super *s, const float *x, int top)
{
    float d = f16_to_f32(s->d), dmin = f16_to_f32(s->dmin);
    for (int g = 0; g < GROUPS; g++) {
        float scale = d * s->scales[g], min = dmin * s->mins[g];
        if (scale == 0)
            continue;
        for (int i = g * GROUP; i < (g + 1) * GROUP; i++)
            s->q[i] = (uint8_t)kquant_clamp(kquant_nearest((x[i] + min) / scale), 0, top);
    }
}

static void fit_super(Super *s, const float *x, const float *importance, int top)
{
    const KquantSteps steps = importance  ? (KquantSteps){-0.9f, 0.05f, 36}
                              : top == 15 ? (KquantSteps){-1.0f, 0.1f, 20}
                                          : (KquantSteps){-0.5f, 0.1f, 15};
    float scales[GROUPS], mins[GROUPS], sums[GROUPS], sigma2 = 0;
    for (int i = 0; i < N; i++)
        sigma2 += x[i] * x[i];
    sigma2 = 2 * sigma2 / N;
    for (int g = 0; g < GROUPS; g++) {
        const float *at = x + g * GROUP;
        float        w[GROUP];
        sums[g] = group_weights(w, at, importance ? importance + g * GROUP : NULL, sigma2);
        scales[g] = kquant_range(s->q + g * GROUP, &mins[g], at, w, GROUP, top, steps);
    }
    if (importance) {
        s->d = f16_from_f32(kquant_positive(s->scales, scales, sums, GROUPS, TOP_SCALE));
        s->dmin = f16_from_f32(kquant_positive(s->mins, mins, sums, GROUPS, TOP_SCALE));
    } else {
        s->d = scales_by_range(s->scales, scales);
        s->dmin = scales_by_range(s->mins, mins);
    }
    requantize(s, x, top);
}

/* 12 bytes for 16 numbers of 6 bits: blocks.c says which bit is where. */
static void put_scales(uint8_t *p, const Super *s)
{
    for (int j = 0; j < 4; j++) {
        int scale = s->scales[j + 4], min = s->mins[j + 4];
        p[j] = (uint8_t)(s->scales[j] | scale >> 4 << 6);
        p[j + 4] = (uint8_t)(s->mins[j] | min >> 4 << 6);
        p[j + 8] = (uint8_t)((scale & 15) | (min & 15) << 4);
    }
}

static void put_nibbles(uint8_t *out, const uint8_t *q)
{
    for (int i = 0; i < N / 2; i++) {
        const uint8_t *low = q + i / GROUP * 2 * GROUP + i % GROUP;
        out[i] = (uint8_t)((low[0] & 15) | (low[GROUP] & 15) << 4);
    }
}

void kquant_q4_k(void *block, const float *x, const KquantRow *row)
{
    BlockQ4_K *b = block;
    Super      s;
    fit_super(&s, x, row->importance, 15);
    b->d = s.d;
    b->dmin = s.dmin;
    put_scales(b->scales, &s);
    put_nibbles(b->q, s.q);
}

void kquant_q5_k(void *block, const float *x, const KquantRow *row)
{
    BlockQ5_K *b = block;
    Super      s;
    fit_super(&s, x, row->importance, 31);
    b->d = s.d;
    b->dmin = s.dmin;
    put_scales(b->scales, &s);
    put_nibbles(b->q, s.q);
    memset(b->high, 0, sizeof b->high);
    for (int i = 0; i < N; i++)
        b->high[i % GROUP] |= (uint8_t)((s.q[i] >> 4) << i / GROUP);
}

/* --- Q6_K: w = d * scale * (q - 32), groups of 16 --- */

static void put_q6(BlockQ6_K *b, const uint8_t *q)
{
    for (int i = 0; i < N / 2; i++) {
        const uint8_t *low = q + i / 64 * 128 + i % 64;
        b->low[i] = (uint8_t)((low[0] & 15) | (low[64] & 15) << 4);
    }
    for (int i = 0; i < N / 4; i++) {
        const uint8_t *at = q + i / 32 * 128 + i % 32;
        b->high[i] = (uint8_t)(at[0] >> 4 | at[32] >> 4 << 2 | at[64] >> 4 << 4 |
                               at[96] >> 4 << 6);
    }
}

void kquant_q6_k(void *block, const float *x, const KquantRow *row)
{
    enum { SIXTEEN = 16 };
    BlockQ6_K *b = block;
    uint8_t    q[N];
    float      scales[N / SIXTEEN];
    for (int g = 0; g < N / SIXTEEN; g++) {
        float        w[SIXTEEN];
        const float *at = x + g * SIXTEEN;
        for (int i = 0; i < SIXTEEN; i++)
            w[i] = row->importance ? row->importance[g * SIXTEEN + i] : at[i] * at[i];
        scales[g] = kquant_signed(q + g * SIXTEEN, at, w, SIXTEEN, 32);
    }
    float extreme = kquant_extreme(scales, N / SIXTEEN);
    if (fabsf(extreme) < 1e-15f) {
        memset(b, 0, sizeof *b);
        return;
    }
    float inverse = -128 / extreme;
    b->d = f16_from_f32(1 / inverse);
    for (int g = 0; g < N / SIXTEEN; g++) {
        int scale = kquant_clamp(kquant_nearest(inverse * scales[g]), -128, 127);
        float d = f16_to_f32(b->d) * (float)scale;
        b->scales[g] = (int8_t)scale;
        if (d == 0)
            continue;
        for (int i = g * SIXTEEN; i < (g + 1) * SIXTEEN; i++)
            q[i] = (uint8_t)(32 + kquant_clamp(kquant_nearest(x[i] / d), -32, 31));
    }
    put_q6(b, q);
}

/* --- rows --- */

static void (*const ENCODERS[N_BLOCKS])(void *block, const float *x, const KquantRow *row) = {
    [BLOCK_Q4_0] = kquant_q4_0, [BLOCK_Q4_1] = kquant_q4_1, [BLOCK_Q5_0] = kquant_q5_0,
    [BLOCK_Q5_1] = kquant_q5_1, [BLOCK_Q8_0] = kquant_q8_0, [BLOCK_Q4_K] = kquant_q4_k,
    [BLOCK_Q5_K] = kquant_q5_k, [BLOCK_Q6_K] = kquant_q6_k,
};

size_t kquant_bytes(BlockType type, int64_t n)
{
    return (size_t)(n / block_info(type)->items) * (size_t)block_info(type)->bytes;
}

void kquant_encode(void *blocks, BlockType type, const float *row, const float *importance,
                   int64_t n)
{
    const BlockInfo *info = block_info(type);
    KquantRow        r = {0};
    uint8_t         *out = blocks;
    CHECK(n % info->items == 0);
    if (importance) {
        for (int64_t i = 0; i < n; i++)
            r.mean2 += row[i] * row[i];
        r.mean2 /= (float)n;
    }
    for (int64_t i = 0; i < n; i += info->items, out += info->bytes) {
        r.importance = importance ? importance + i : NULL;
        ENCODERS[type](out, row + i, &r);
    }
}
