/* kquant_small_isa.c - encoders of the block formats of 32 weights. Without importance
 * the range of the block gives the scale; with it, the searches.
 * cost    without importance 0.2 to 0.3 ns a weight and core (AVX-512)
 * sums    none without importance; no fused operations: the same bits with every
 *         instruction set
 * test    tests/quant/test_kquant.c, every instruction set */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"
#include "quant/methods/kquant_parts.h"
#include "quant/methods/kquant_search.h"

enum { N = BLOCK_SMALL, PARTS = N / VEC };

static const KquantSteps STEPS = {-0.9f, 0.05f, 36};

/* 1 / d; 0 where that is none: the block decodes to zeros then anyway. */
ALWAYS float inverse_of(float d)
{
    float inverse = 1 / d;
    return isfinite(inverse) ? inverse : 0;
}

/* --- a block in registers --- */

typedef struct {
    Vec at[PARTS];
} Block;

ALWAYS Block block_load(const float *x)
{
    Block b;
    for (int i = 0; i < PARTS; i++)
        b.at[i] = vec_load(x + i * VEC);
    return b;
}

ALWAYS float block_absmax(const Block *b)
{
    Vec top = vec_abs(b->at[0]);
    for (int i = 1; i < PARTS; i++)
        top = vec_max(vec_abs(b->at[i]), top);
    return vec_top(top);
}

/* The number of largest magnitude, the first of such, with its sign. 0 for none. */
ALWAYS float block_extreme(const Block *b, const float *x)
{
    float    most = block_absmax(b);
    uint32_t where = 0;
    for (int i = 0; i < PARTS; i++)
        where |= vec_at_least(vec_abs(b->at[i]), vec_all(most)) << i * VEC;
    return most > 0 ? x[__builtin_ctz(where)] : 0;
}

/* --- what the block stores for codes 0..31 --- */

ALWAYS void put_nibbles(uint8_t *out, const Ivec *q)
{
    for (int i = 0; i < PARTS / 2; i++)
        ivec_store_bytes(out + i * VEC, (q[i] & 15) | (q[i + PARTS / 2] & 15) << 4);
}

ALWAYS uint32_t fifth_bits(const Ivec *q)
{
    uint32_t high = 0;
    for (int i = 0; i < PARTS; i++)
        high |= vec_at_least(__builtin_convertvector(q[i], Vec), vec_all(16)) << i * VEC;
    return high;
}

ALWAYS void put_block(void *blocks, int64_t i, BlockType type, float d, float m, const Ivec *q)
{
    BlockQ4_0 *q4_0 = (BlockQ4_0 *)blocks + i;
    BlockQ4_1 *q4_1 = (BlockQ4_1 *)blocks + i;
    BlockQ5_0 *q5_0 = (BlockQ5_0 *)blocks + i;
    BlockQ5_1 *q5_1 = (BlockQ5_1 *)blocks + i;
    switch (type) {
    case BLOCK_Q4_0:
        q4_0->d = f16_from_f32(d);
        put_nibbles(q4_0->q, q);
        break;
    case BLOCK_Q4_1:
        q4_1->d = f16_from_f32(d);
        q4_1->m = f16_from_f32(m);
        put_nibbles(q4_1->q, q);
        break;
    case BLOCK_Q5_0:
        q5_0->d = f16_from_f32(d);
        q5_0->high = fifth_bits(q);
        put_nibbles(q5_0->q, q);
        break;
    default:
        q5_1->d = f16_from_f32(d);
        q5_1->m = f16_from_f32(m);
        q5_1->high = fifth_bits(q);
        put_nibbles(q5_1->q, q);
    }
}

/* --- w ~ d * (q - top): the number of largest magnitude becomes -top --- */

ALWAYS void around_zero(void *blocks, BlockType type, const float *x, int top, int64_t n)
{
    for (int64_t k = 0; k < n; k++, x += N) {
        Block b = block_load(x);
        Ivec  q[PARTS];
        float d = block_extreme(&b, x) / (float)-top;
        Vec   inverse = vec_all(inverse_of(d)), shift = vec_all((float)top + 0.5f);
        for (int i = 0; i < PARTS; i++) {
            Vec code = kquant_within(b.at[i] * inverse + shift, 0, (float)(2 * top - 1));
            q[i] = __builtin_convertvector(code, Ivec);
        }
        put_block(blocks, k, type, d, 0, q);
    }
}

/* --- w ~ d * q + m --- */

/* Least and largest, the first of such: of zeros, which have two signs, the first counts. */
ALWAYS void block_range(float *lo, float *hi, const Block *b, const float *x)
{
    Vec least = b->at[0], most = b->at[0];
    for (int i = 1; i < PARTS; i++) {
        least = vec_min(b->at[i], least);
        most = vec_max(b->at[i], most);
    }
    *lo = -vec_top(-least);
    *hi = vec_top(most);
    if (*lo == 0) {
        while (*x != 0)
            x++;
        *lo = *x;
        *hi = *hi > 0 ? *hi : *lo;
    }
}

ALWAYS void from_min(void *blocks, BlockType type, const float *x, int top, int64_t n)
{
    for (int64_t k = 0; k < n; k++, x += N) {
        Block b = block_load(x);
        Ivec  q[PARTS];
        float lo, hi;
        block_range(&lo, &hi, &b, x);
        float d = (hi - lo) / (float)top;
        Vec   inverse = vec_all(inverse_of(d));
        for (int i = 0; i < PARTS; i++) {
            Vec code = (b.at[i] - vec_all(lo)) * inverse + vec_all(0.5f);
            q[i] = __builtin_convertvector(kquant_within(code, 0, (float)top), Ivec);
        }
        put_block(blocks, k, type, d, lo, q);
    }
}

/* --- with importance: VEC blocks, one a lane --- */

typedef struct {
    Vec xs[N], ws[N], q[N], scale, min;
} Search;

static void search_open(Search *s, const float *x, const KquantRow *row, int64_t first,
                        int64_t n)
{
    float w[VEC * N];
    for (int64_t i = 0; i < n * N; i += VEC) {
        Vec v = vec_load(x + first * N + i);
        Vec root = vec_sqrt(vec_all(row->mean2) + v * v);
        vec_store(w + i, vec_load(row->importance + first * N + i) * root);
    }
    kquant_gather(s->xs, x + first * N, n, N);
    kquant_gather(s->ws, w, n, N);
}

static void search_put(void *blocks, BlockType type, const Search *s, int64_t first, int64_t n)
{
    uint8_t codes[VEC * N];
    kquant_scatter(codes, s->q, n, N);
    for (int64_t b = 0; b < n; b++) {
        Ivec q[PARTS];
        for (int i = 0; i < N; i++)
            ((int32_t *)q)[i] = codes[b * N + i];
        put_block(blocks, first + b, type, s->scale[b], -s->min[b], q);
    }
}

ALWAYS void search_around_zero(void *blocks, BlockType type, const float *x, int top,
                               const KquantRow *row, int64_t n)
{
    for (int64_t first = 0; first < n; first += VEC) {
        Search  s = {.min = {0}};
        int64_t some = i64_min(VEC, n - first);
        search_open(&s, x, row, first, some);
        ISA_NAME(kquant_signed_)(s.q, &s.scale, s.xs, s.ws, N, top);
        search_put(blocks, type, &s, first, some);
    }
}

ALWAYS void search_from_min(void *blocks, BlockType type, const float *x, int top,
                            const KquantRow *row, int64_t n)
{
    for (int64_t first = 0; first < n; first += VEC) {
        Search  s;
        int64_t some = i64_min(VEC, n - first);
        search_open(&s, x, row, first, some);
        ISA_NAME(kquant_range_)(s.q, &s.scale, &s.min, s.xs, s.ws, N, top, STEPS);
        search_put(blocks, type, &s, first, some);
    }
}

/* --- the formats --- */

static void q4_0(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    if (row->importance)
        search_around_zero(blocks, BLOCK_Q4_0, x, 8, row, n);
    else
        around_zero(blocks, BLOCK_Q4_0, x, 8, n);
}

static void q4_1(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    if (row->importance)
        search_from_min(blocks, BLOCK_Q4_1, x, 15, row, n);
    else
        from_min(blocks, BLOCK_Q4_1, x, 15, n);
}

static void q5_0(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    if (row->importance)
        search_around_zero(blocks, BLOCK_Q5_0, x, 16, row, n);
    else
        around_zero(blocks, BLOCK_Q5_0, x, 16, n);
}

static void q5_1(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    if (row->importance)
        search_from_min(blocks, BLOCK_Q5_1, x, 31, row, n);
    else
        from_min(blocks, BLOCK_Q5_1, x, 31, n);
}

/* roundf, of |x| < 2^22: what is just less than a half away from zero, then cut off. The
 * half itself is carried over by the sum's own rounding. */
ALWAYS Ivec round_away(Vec x)
{
    Vec half = (Vec)(((Ivec)x & INT32_MIN) | (Ivec)vec_all(0x1.fffffep-2f));
    return __builtin_convertvector(x + half, Ivec);
}

/* Importance has no say: the scale is that of the range. */
static void q8_0(void *blocks, const float *x, const KquantRow *row, int64_t n)
{
    BlockQ8_0 *out = blocks;
    (void)row;
    for (int64_t k = 0; k < n; k++, x += N) {
        Block b = block_load(x);
        float d = block_absmax(&b) / 127;
        Vec   inverse = vec_all(inverse_of(d));
        out[k].d = f16_from_f32(d);
        for (int i = 0; i < PARTS; i++)
            ivec_store_bytes(out[k].q + i * VEC, round_away(b.at[i] * inverse));
    }
}

const KquantIsa ISA_NAME(kquant_small_) = {{
    [BLOCK_Q4_0] = q4_0, [BLOCK_Q4_1] = q4_1, [BLOCK_Q5_0] = q5_0, [BLOCK_Q5_1] = q5_1,
    [BLOCK_Q8_0] = q8_0,
}};
