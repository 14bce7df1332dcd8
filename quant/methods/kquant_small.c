/* kquant_small.c - encoders of the block formats of 32 weights. Without importance
 * the range of the block gives the scale; with it, the searches. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "quant/methods/kquant_parts.h"
#include "quant/methods/kquant_search.h"

enum { N = BLOCK_SMALL };

static const KquantSteps STEPS = {-0.9f, 0.05f, 36};

/* 1 / d; 0 where that is none: the block decodes to zeros then anyway. */
static float inverse_of(float d)
{
    float inverse = 1 / d;
    return isfinite(inverse) ? inverse : 0;
}

/* w [n,N] */
static void weigh(float *w, const float *x, const KquantRow *row, int n)
{
    for (int i = 0; i < n * N; i++)
        w[i] = row->importance[i] * sqrtf(row->mean2 + x[i] * x[i]);
}

/* --- what the block stores for codes 0..31 --- */

static void put_nibbles(uint8_t *out, const uint8_t *q)
{
    for (int j = 0; j < N / 2; j++)
        out[j] = (uint8_t)((q[j] & 15) | (q[j + N / 2] & 15) << 4);
}

static uint32_t fifth_bits(const uint8_t *q)
{
    uint32_t high = 0;
    for (int j = 0; j < N; j++)
        high |= (uint32_t)(q[j] >> 4) << j;
    return high;
}

/* --- the numbers --- */

/* Of some blocks: w = d * (q - zero) + m. */
typedef struct {
    float   d[KQUANT_LANES], m[KQUANT_LANES];
    uint8_t q[KQUANT_LANES][N];
} Numbers;

static void search_around_zero(Numbers *out, const float *x, int top, const KquantRow *row,
                               int n)
{
    float w[KQUANT_LANES * N];
    Lanes q[N], xs[N], ws[N], scale;
    weigh(w, x, row, n);
    kquant_gather(xs, x, n, N);
    kquant_gather(ws, w, n, N);
    kquant_signed(q, &scale, xs, ws, N, top);
    kquant_scatter(out->q[0], q, n, N);
    for (int b = 0; b < n; b++)
        out->d[b] = scale[b];
}

/* w ~ d * (q - top): the number of largest magnitude becomes -top. */
static void around_zero(Numbers *out, const float *x, int top, const KquantRow *row, int n)
{
    if (row->importance) {
        search_around_zero(out, x, top, row, n);
        return;
    }
    for (int b = 0; b < n; b++, x += N) {
        float d = kquant_extreme(x, N) / (float)-top, inverse = inverse_of(d);
        out->d[b] = d;
        for (int i = 0; i < N; i++) {
            float code = x[i] * inverse + ((float)top + 0.5f);
            out->q[b][i] = (uint8_t)kquant_clamp(code, 0, (float)(2 * top - 1));
        }
    }
}

static void search_from_min(Numbers *out, const float *x, int top, const KquantRow *row, int n)
{
    float w[KQUANT_LANES * N];
    Lanes q[N], xs[N], ws[N], scale, min;
    weigh(w, x, row, n);
    kquant_gather(xs, x, n, N);
    kquant_gather(ws, w, n, N);
    kquant_range(q, &scale, &min, xs, ws, N, top, STEPS);
    kquant_scatter(out->q[0], q, n, N);
    for (int b = 0; b < n; b++) {
        out->d[b] = scale[b];
        out->m[b] = -min[b];
    }
}

/* w ~ d * q + m */
static void from_min(Numbers *out, const float *x, int top, const KquantRow *row, int n)
{
    if (row->importance) {
        search_from_min(out, x, top, row, n);
        return;
    }
    for (int b = 0; b < n; b++, x += N) {
        float lo = x[0], hi = x[0];
        for (int i = 1; i < N; i++) {
            lo = x[i] < lo ? x[i] : lo;
            hi = x[i] > hi ? x[i] : hi;
        }
        float d = (hi - lo) / (float)top, inverse = inverse_of(d);
        out->d[b] = d;
        out->m[b] = lo;
        for (int i = 0; i < N; i++) {
            float code = (x[i] - lo) * inverse + 0.5f;
            out->q[b][i] = (uint8_t)kquant_clamp(code, 0, (float)top);
        }
    }
}

/* --- the formats --- */

void kquant_q4_0(void *blocks, const float *x, const KquantRow *row, int n)
{
    BlockQ4_0 *b = blocks;
    Numbers    t;
    around_zero(&t, x, 8, row, n);
    for (int i = 0; i < n; i++) {
        b[i].d = f16_from_f32(t.d[i]);
        put_nibbles(b[i].q, t.q[i]);
    }
}

void kquant_q4_1(void *blocks, const float *x, const KquantRow *row, int n)
{
    BlockQ4_1 *b = blocks;
    Numbers    t;
    from_min(&t, x, 15, row, n);
    for (int i = 0; i < n; i++) {
        b[i].d = f16_from_f32(t.d[i]);
        b[i].m = f16_from_f32(t.m[i]);
        put_nibbles(b[i].q, t.q[i]);
    }
}

void kquant_q5_0(void *blocks, const float *x, const KquantRow *row, int n)
{
    BlockQ5_0 *b = blocks;
    Numbers    t;
    around_zero(&t, x, 16, row, n);
    for (int i = 0; i < n; i++) {
        b[i].d = f16_from_f32(t.d[i]);
        b[i].high = fifth_bits(t.q[i]);
        put_nibbles(b[i].q, t.q[i]);
    }
}

void kquant_q5_1(void *blocks, const float *x, const KquantRow *row, int n)
{
    BlockQ5_1 *b = blocks;
    Numbers    t;
    from_min(&t, x, 31, row, n);
    for (int i = 0; i < n; i++) {
        b[i].d = f16_from_f32(t.d[i]);
        b[i].m = f16_from_f32(t.m[i]);
        b[i].high = fifth_bits(t.q[i]);
        put_nibbles(b[i].q, t.q[i]);
    }
}

/* roundf, of |x| < 2^31, in steps that make vectors: the rest after truncation is exact. */
static inline int round_away(float x)
{
    int   whole = (int)x;
    float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* Importance has no say: the scale is that of the range. */
void kquant_q8_0(void *blocks, const float *x, const KquantRow *row, int n)
{
    BlockQ8_0 *b = blocks;
    (void)row;
    for (int i = 0; i < n; i++, x += N) {
        float d = fabsf(kquant_extreme(x, N)) / 127, inverse = inverse_of(d);
        b[i].d = f16_from_f32(d);
        for (int j = 0; j < N; j++)
            b[i].q[j] = (int8_t)round_away(x[j] * inverse);
    }
}
