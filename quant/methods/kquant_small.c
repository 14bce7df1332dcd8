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

static void weigh(float *w, const float *x, const KquantRow *row)
{
    for (int i = 0; i < N; i++)
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

/* x ~ d * (q - top): the number of largest magnitude becomes -top. */
static float around_zero(uint8_t *q, const float *x, int top, const KquantRow *row)
{
    if (row->importance) {
        float w[N];
        weigh(w, x, row);
        return kquant_signed(q, x, w, N, top);
    }
    float d = kquant_extreme(x, N) / (float)-top, inverse = inverse_of(d);
    for (int i = 0; i < N; i++) {
        int code = (int)(x[i] * inverse + ((float)top + 0.5f));
        q[i] = (uint8_t)(code < 2 * top - 1 ? code : 2 * top - 1);
    }
    return d;
}

/* x ~ d * q + *m */
static float from_min(uint8_t *q, float *m, const float *x, int top, const KquantRow *row)
{
    if (row->importance) {
        float w[N], min, d;
        weigh(w, x, row);
        d = kquant_range(q, &min, x, w, N, top, STEPS);
        *m = -min;
        return d;
    }
    float lo = x[0], hi = x[0];
    for (int i = 1; i < N; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    float d = (hi - lo) / (float)top, inverse = inverse_of(d);
    for (int i = 0; i < N; i++) {
        int code = (int)((x[i] - lo) * inverse + 0.5f);
        q[i] = (uint8_t)(code < top ? code : top);
    }
    *m = lo;
    return d;
}

void kquant_q4_0(void *block, const float *x, const KquantRow *row)
{
    BlockQ4_0 *b = block;
    uint8_t    q[N];
    b->d = f16_from_f32(around_zero(q, x, 8, row));
    put_nibbles(b->q, q);
}

void kquant_q4_1(void *block, const float *x, const KquantRow *row)
{
    BlockQ4_1 *b = block;
    uint8_t    q[N];
    float      m;
    b->d = f16_from_f32(from_min(q, &m, x, 15, row));
    b->m = f16_from_f32(m);
    put_nibbles(b->q, q);
}

void kquant_q5_0(void *block, const float *x, const KquantRow *row)
{
    BlockQ5_0 *b = block;
    uint8_t    q[N];
    b->d = f16_from_f32(around_zero(q, x, 16, row));
    b->high = fifth_bits(q);
    put_nibbles(b->q, q);
}

void kquant_q5_1(void *block, const float *x, const KquantRow *row)
{
    BlockQ5_1 *b = block;
    uint8_t    q[N];
    float      m;
    b->d = f16_from_f32(from_min(q, &m, x, 31, row));
    b->m = f16_from_f32(m);
    b->high = fifth_bits(q);
    put_nibbles(b->q, q);
}

/* Importance has no say: the scale is that of the range. */
void kquant_q8_0(void *block, const float *x, const KquantRow *row)
{
    BlockQ8_0 *b = block;
    float      d = fabsf(kquant_extreme(x, N)) / 127, inverse = inverse_of(d);
    (void)row;
    b->d = f16_from_f32(d);
    for (int i = 0; i < N; i++)
        b->q[i] = (int8_t)roundf(x[i] * inverse);  // halves away from 0
}
