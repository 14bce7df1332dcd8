/* kquant.c - encoders of the block formats of 256 weights, and the way in.
 * A super-block has groups with scales of their own, which are in turn whole
 * numbers of few bits times one f16: fit the groups, round their scales, then round
 * the weights again to what is stored. */
#include "quant/methods/kquant.h"

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"
#include "quant/methods/kquant_parts.h"
#include "quant/methods/kquant_search.h"

enum { N = BLOCK_LARGE, GROUP = 32, GROUPS = 8, TOP_SCALE = 63 };

/* Squares of weights beyond 1e19 overflow, and then nothing can be fitted: the block says
 * so, where comparisons with NaN would make it zeros. */
static const uint16_t F16_NAN = 0x7e00;

static bool all_finite(const float *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

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
        out[g] = (uint8_t)kquant_clamp(KQUANT_NEAREST(inverse * scales[g]), 0, TOP_SCALE);
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
        for (int i = g * GROUP; i < (g + 1) * GROUP; i++) {
            float code = KQUANT_NEAREST((x[i] + min) / scale);
            s->q[i] = (uint8_t)kquant_clamp(code, 0, (float)top);
        }
    }
}

/* Scales and minima of the groups, each by itself; sums: of its weights. */
static void fit_groups(Super *s, float *scales, float *mins, float *sums, const float *x,
                       const float *importance, int top)
{
    const KquantSteps steps = importance  ? (KquantSteps){-0.9f, 0.05f, 36}
                              : top == 15 ? (KquantSteps){-1.0f, 0.1f, 20}
                                          : (KquantSteps){-0.5f, 0.1f, 15};
    float w[N], sigma2 = 0;
    for (int i = 0; i < N; i++)
        sigma2 += x[i] * x[i];
    sigma2 = 2 * sigma2 / N;
    for (int g = 0; g < GROUPS; g++)
        sums[g] = group_weights(w + g * GROUP, x + g * GROUP,
                                importance ? importance + g * GROUP : NULL, sigma2);
    for (int g = 0; g < GROUPS; g += KQUANT_LANES) {
        Lanes q[GROUP], xs[GROUP], ws[GROUP], scale, min;
        kquant_gather(xs, x + g * GROUP, KQUANT_LANES, GROUP);
        kquant_gather(ws, w + g * GROUP, KQUANT_LANES, GROUP);
        kquant_range(q, &scale, &min, xs, ws, GROUP, top, steps);
        kquant_scatter(s->q + g * GROUP, q, KQUANT_LANES, GROUP);
        memcpy(scales + g, &scale, sizeof scale);
        memcpy(mins + g, &min, sizeof min);
    }
}

static void fit_super(Super *s, const float *x, const float *importance, int top)
{
    float scales[GROUPS], mins[GROUPS], sums[GROUPS];
    fit_groups(s, scales, mins, sums, x, importance, top);
    if (!all_finite(scales, GROUPS) || !all_finite(mins, GROUPS)) {
        s->d = s->dmin = F16_NAN;
        memset(s->scales, 0, sizeof s->scales);
        memset(s->mins, 0, sizeof s->mins);
    } else if (importance) {
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

void kquant_q4_k(void *block, const float *x, const KquantRow *row, int n)
{
    CHECK(n == 1);
    BlockQ4_K *b = block;
    Super      s;
    fit_super(&s, x, row->importance, 15);
    b->d = s.d;
    b->dmin = s.dmin;
    put_scales(b->scales, &s);
    put_nibbles(b->q, s.q);
}

void kquant_q5_k(void *block, const float *x, const KquantRow *row, int n)
{
    CHECK(n == 1);
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

enum { SIXTEEN = 16 };

static void fit_q6(uint8_t *q, float *scales, const float *x, const float *importance)
{
    float w[N];
    for (int i = 0; i < N; i++)
        w[i] = importance ? importance[i] : x[i] * x[i];
    for (int g = 0; g < N / SIXTEEN; g += KQUANT_LANES) {
        Lanes codes[SIXTEEN], xs[SIXTEEN], ws[SIXTEEN], scale;
        kquant_gather(xs, x + g * SIXTEEN, KQUANT_LANES, SIXTEEN);
        kquant_gather(ws, w + g * SIXTEEN, KQUANT_LANES, SIXTEEN);
        kquant_signed(codes, &scale, xs, ws, SIXTEEN, 32);
        kquant_scatter(q + g * SIXTEEN, codes, KQUANT_LANES, SIXTEEN);
        memcpy(scales + g, &scale, sizeof scale);
    }
}

void kquant_q6_k(void *block, const float *x, const KquantRow *row, int n)
{
    BlockQ6_K *b = block;
    uint8_t    q[N];
    float      scales[N / SIXTEEN];
    CHECK(n == 1);
    fit_q6(q, scales, x, row->importance);
    float extreme = kquant_extreme(scales, N / SIXTEEN);
    if (fabsf(extreme) < 1e-15f) {
        memset(b, 0, sizeof *b);
        b->d = all_finite(scales, N / SIXTEEN) ? 0 : F16_NAN;
        return;
    }
    float inverse = -128 / extreme;
    b->d = f16_from_f32(1 / inverse);
    for (int g = 0; g < N / SIXTEEN; g++) {
        float scale = kquant_clamp(KQUANT_NEAREST(inverse * scales[g]), -128, 127);
        float d = f16_to_f32(b->d) * scale;
        b->scales[g] = (int8_t)scale;
        if (d == 0)
            continue;
        for (int i = g * SIXTEEN; i < (g + 1) * SIXTEEN; i++)
            q[i] = (uint8_t)(32 + kquant_clamp(KQUANT_NEAREST(x[i] / d), -32, 31));
    }
    put_q6(b, q);
}

/* --- rows --- */

static void (*const ENCODERS[N_BLOCKS])(void *, const float *, const KquantRow *, int n) = {
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
    int64_t at_once = info->items == BLOCK_LARGE ? 1 : KQUANT_LANES;
    for (int64_t i = 0; i < n; i += at_once * info->items) {
        int64_t blocks_here = i64_min(at_once, (n - i) / info->items);
        r.importance = importance ? importance + i : NULL;
        ENCODERS[type](out, row + i, &r, (int)blocks_here);
        out += blocks_here * info->bytes;
    }
}
