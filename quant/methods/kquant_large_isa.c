/* kquant_large_isa.c - encoders of the block formats of 256 weights.
 * A super-block has groups with scales of their own, which are in turn whole
 * numbers of few bits times one f16: fit the groups, round their scales, then round
 * the weights again to what is stored.
 * test    tests/quant/test_kquant.c, every instruction set */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"
#include "quant/methods/kquant_parts.h"
#include "quant/methods/kquant_search.h"

enum { N = BLOCK_LARGE };

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

enum {
    GROUP = 32, GROUPS = 8, TOP_SCALE = 63,
    AT_ONCE = VEC > GROUPS ? VEC / GROUPS : 1,   // super-blocks whose groups fill the lanes
    BATCHES = AT_ONCE * GROUPS / VEC             // of lanes
};

/* Some super-blocks before they are laid out, group by group. */
typedef struct {
    Vec     x[BATCHES][GROUP], q[BATCHES][GROUP];
    float   scale[AT_ONCE * GROUPS], min[AT_ONCE * GROUPS], sum[AT_ONCE * GROUPS];
    uint8_t scales[AT_ONCE * GROUPS], mins[AT_ONCE * GROUPS];  // 6 bits
    uint8_t codes[AT_ONCE * N];
} Super;

/* w of VEC groups; returns their sums. importance and sigma2 where there is one. */
static Vec group_weights(Vec *w, const Vec *x, const Vec *importance, Vec sigma2)
{
    Vec sum = {0}, sum2 = {0};
    for (int i = 0; i < GROUP; i++)
        sum2 += x[i] * x[i];
    Vec root = vec_sqrt(sum2 / vec_all(GROUP));
    for (int i = 0; i < GROUP; i++) {
        w[i] = importance ? importance[i] * vec_sqrt(sigma2 + x[i] * x[i])
                          : root + vec_abs(x[i]);
        sum += w[i];
    }
    return sum;
}

/* Twice the mean of x^2 of a super-block. */
static float sigma2_of(const float *x)
{
    float sum2 = 0;
    for (int i = 0; i < N; i++)
        sum2 += x[i] * x[i];
    return 2 * sum2 / N;
}

/* Scales and minima of the groups, each by itself. x: of the n super-blocks. */
static void fit_groups(Super *s, const float *x, const float *importance, int64_t n, int top)
{
    const KquantSteps steps = importance  ? (KquantSteps){-0.9f, 0.05f, 36}
                              : top == 15 ? (KquantSteps){-1.0f, 0.1f, 20}
                                          : (KquantSteps){-0.5f, 0.1f, 15};
    for (int b = 0; b < BATCHES; b++) {
        int64_t first = b * VEC, some = i64_min(VEC, n * GROUPS - first);
        Vec     w[GROUP], h[GROUP], sigma2 = {0}, scale, min;
        kquant_gather(s->x[b], x + first * GROUP, some, GROUP);
        if (importance) {
            kquant_gather(h, importance + first * GROUP, some, GROUP);
            for (int64_t g = 0; g < some; g++)
                sigma2[g] = sigma2_of(x + (first + g) / GROUPS * N);
        }
        vec_store(s->sum + first, group_weights(w, s->x[b], importance ? h : NULL, sigma2));
        ISA_NAME(kquant_range_)(s->q[b], &scale, &min, s->x[b], w, GROUP, top, steps);
        vec_store(s->scale + first, scale);
        vec_store(s->min + first, min);
    }
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

/* Scales and minima of super-block k as they will be stored; s->scale and s->min are then
 * what readers make of them. */
static void round_scales(uint16_t *d, uint16_t *dmin, Super *s, int64_t k, bool weighted)
{
    float   *scale = s->scale + k * GROUPS, *min = s->min + k * GROUPS;
    float   *sum = s->sum + k * GROUPS;
    uint8_t *scales = s->scales + k * GROUPS, *mins = s->mins + k * GROUPS;
    if (!all_finite(scale, GROUPS) || !all_finite(min, GROUPS)) {
        *d = *dmin = F16_NAN;
        memset(scales, 0, GROUPS);
        memset(mins, 0, GROUPS);
    } else if (weighted) {
        *d = f16_from_f32(kquant_positive(scales, scale, sum, GROUPS, TOP_SCALE));
        *dmin = f16_from_f32(kquant_positive(mins, min, sum, GROUPS, TOP_SCALE));
    } else {
        *d = scales_by_range(scales, scale);
        *dmin = scales_by_range(mins, min);
    }
    for (int g = 0; g < GROUPS; g++) {
        scale[g] = f16_to_f32(*d) * scales[g];
        min[g] = f16_to_f32(*dmin) * mins[g];
    }
}

/* Codes once more, for what is stored; those of a group without scale stay. */
static void requantize(Super *s, int64_t n, int top)
{
    const Vec zero = {0};
    for (int b = 0; b < BATCHES; b++) {
        Vec     scale = vec_load(s->scale + b * VEC), min = vec_load(s->min + b * VEC);
        int64_t first = b * VEC;
        for (int i = 0; i < GROUP; i++) {
            Vec code = vec_nearest((s->x[b][i] + min) / scale);
            s->q[b][i] = vec_if_equal(scale, zero, s->q[b][i],
                                      kquant_within(code, 0, (float)top));
        }
        kquant_scatter(s->codes + first * GROUP, s->q[b], i64_min(VEC, n * GROUPS - first),
                       GROUP);
    }
}

/* n <= AT_ONCE super-blocks; d and dmin of each. */
static void fit_super(Super *s, uint16_t *d, uint16_t *dmin, const float *x,
                      const float *importance, int64_t n, int top)
{
    fit_groups(s, x, importance, n, top);
    for (int64_t k = 0; k < n; k++)
        round_scales(&d[k], &dmin[k], s, k, importance != NULL);
    requantize(s, n, top);
}

/* 12 bytes for 16 numbers of 6 bits: blocks.c says which bit is where. */
static void put_scales(uint8_t *p, const uint8_t *scales, const uint8_t *mins)
{
    for (int j = 0; j < 4; j++) {
        int scale = scales[j + 4], min = mins[j + 4];
        p[j] = (uint8_t)(scales[j] | scale >> 4 << 6);
        p[j + 4] = (uint8_t)(mins[j] | min >> 4 << 6);
        p[j + 8] = (uint8_t)((scale & 15) | (min & 15) << 4);
    }
}

/* The low four bits: in each run of 2 * half codes, those of the second half on top. */
ALWAYS void put_nibbles(uint8_t *out, const uint8_t *q, int half)
{
    for (int i = 0; i < N; i += 2 * half)
        for (int j = 0; j < half; j++)
            out[i / 2 + j] = (uint8_t)((q[i + j] & 15) | (q[i + half + j] & 15) << 4);
}

static void q4_k(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    BlockQ4_K *b = blocks;
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        Super       s;
        uint16_t    d[AT_ONCE], dmin[AT_ONCE];
        int64_t     some = i64_min(AT_ONCE, n - i);
        const float *h = row->importance ? row->importance + i * N : NULL;
        fit_super(&s, d, dmin, x + i * N, h, some, 15);
        for (int64_t k = 0; k < some; k++) {
            b[i + k].d = d[k];
            b[i + k].dmin = dmin[k];
            put_scales(b[i + k].scales, s.scales + k * GROUPS, s.mins + k * GROUPS);
            put_nibbles(b[i + k].q, s.codes + k * N, GROUP);
        }
    }
}

static void q5_k(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    BlockQ5_K *b = blocks;
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        Super       s;
        uint16_t    d[AT_ONCE], dmin[AT_ONCE];
        int64_t     some = i64_min(AT_ONCE, n - i);
        const float *h = row->importance ? row->importance + i * N : NULL;
        fit_super(&s, d, dmin, x + i * N, h, some, 31);
        for (int64_t k = 0; k < some; k++) {
            const uint8_t *q = s.codes + k * N;
            b[i + k].d = d[k];
            b[i + k].dmin = dmin[k];
            put_scales(b[i + k].scales, s.scales + k * GROUPS, s.mins + k * GROUPS);
            put_nibbles(b[i + k].q, q, GROUP);
            memset(b[i + k].high, 0, sizeof b[i + k].high);
            for (int g = 0; g < GROUPS; g++)
                for (int j = 0; j < GROUP; j++)
                    b[i + k].high[j] |= (uint8_t)((q[g * GROUP + j] >> 4) << g);
        }
    }
}

/* --- Q6_K: w = d * scale * (q - 32), groups of 16 --- */

enum { SIXTEEN = 16, GROUPS6 = N / SIXTEEN, BATCHES6 = GROUPS6 / VEC };

typedef struct {
    Vec   x[BATCHES6][SIXTEEN], q[BATCHES6][SIXTEEN];
    float scale[GROUPS6];
} Six;

static void fit_q6(Six *s, const float *x, const float *importance)
{
    for (int b = 0; b < BATCHES6; b++) {
        Vec w[SIXTEEN], scale;
        kquant_gather(s->x[b], x + b * VEC * SIXTEEN, VEC, SIXTEEN);
        if (importance)
            kquant_gather(w, importance + b * VEC * SIXTEEN, VEC, SIXTEEN);
        for (int i = 0; i < SIXTEEN && !importance; i++)
            w[i] = s->x[b][i] * s->x[b][i];
        ISA_NAME(kquant_signed_)(s->q[b], &scale, s->x[b], w, SIXTEEN, 32);
        vec_store(s->scale + b * VEC, scale);
    }
}

/* Codes once more, for what is stored: d, the scales of readers. */
static void requantize_q6(uint8_t *codes, Six *s, const float *d)
{
    const Vec zero = {0}, half = vec_all(32);
    for (int b = 0; b < BATCHES6; b++) {
        Vec scale = vec_load(d + b * VEC);
        for (int i = 0; i < SIXTEEN; i++) {
            Vec code = half + kquant_within(vec_nearest(s->x[b][i] / scale), -32, 31);
            s->q[b][i] = vec_if_equal(scale, zero, s->q[b][i], code);
        }
        kquant_scatter(codes + b * VEC * SIXTEEN, s->q[b], VEC, SIXTEEN);
    }
}

static void put_q6(BlockQ6_K *b, const uint8_t *q)
{
    put_nibbles(b->low, q, 64);
    for (int i = 0; i < N; i += 128)
        for (int j = 0; j < 32; j++) {
            const uint8_t *at = q + i + j;
            b->high[i / 4 + j] = (uint8_t)(at[0] >> 4 | at[32] >> 4 << 2 | at[64] >> 4 << 4 |
                                           at[96] >> 4 << 6);
        }
}

static void one_q6(BlockQ6_K *b, const float *x, const float *importance)
{
    Six     s;
    uint8_t codes[N];
    float   d[GROUPS6];
    fit_q6(&s, x, importance);
    float extreme = kquant_extreme(s.scale, GROUPS6);
    if (fabsf(extreme) < 1e-15f) {
        memset(b, 0, sizeof *b);
        b->d = all_finite(s.scale, GROUPS6) ? 0 : F16_NAN;
        return;
    }
    float inverse = -128 / extreme;
    b->d = f16_from_f32(1 / inverse);
    for (int g = 0; g < GROUPS6; g++) {
        float scale = kquant_clamp(KQUANT_NEAREST(inverse * s.scale[g]), -128, 127);
        d[g] = f16_to_f32(b->d) * scale;
        b->scales[g] = (int8_t)scale;
    }
    requantize_q6(codes, &s, d);
    put_q6(b, codes);
}

static void q6_k(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    BlockQ6_K *b = blocks;
    for (int64_t i = 0; i < n; i++)
        one_q6(b + i, x + i * N, row->importance ? row->importance + i * N : NULL);
}

const KquantIsa ISA_NAME(kquant_large_) = {{
    [BLOCK_Q4_K] = q4_k, [BLOCK_Q5_K] = q5_k, [BLOCK_Q6_K] = q6_k,
}};
