/* rope.c - cosines and sines of rotary positions.
 *   angle[p,i] = p * inv[i],  inv[i] = theta^(-2i/D),  D rotary dims
 * and what each RoPE kind does to inv. All in f32 with the steps in the order
 * of transformers' modeling_rope_utils.py, since at position 8192 the last bit
 * of inv moves the angle by 5e-4. What Python computes in double is double here;
 * 1 / x is a division where PyTorch takes the reciprocal: same bits. */
#include <math.h>

#include "analysis/model.h"

/* theta^(2i/D); i in items, not in pairs of bytes. */
static float power(double theta, int64_t i, int64_t D)
{
    return powf((float)theta, (float)(2 * i) / (float)D);
}

static int64_t original_length(const Rope *r, int64_t max_positions)
{
    return r->original_max_positions ? r->original_max_positions : max_positions;
}

/* Where the file gives no factor, the ratio of the two lengths. */
static double stretch(const Rope *r, int64_t max_positions)
{
    return r->factor > 0 ? r->factor
                         : (double)max_positions / (double)original_length(r, max_positions);
}

/* --- dynamic: a larger base once the text is longer than the model's length --- */

static float dynamic_theta(const Rope *r, int64_t max_positions, int64_t sequence)
{
    double D = (double)r->dims, M = (double)max_positions;
    if (sequence <= max_positions)  // transformers then has all of it in double
        return (float)(r->theta * pow(r->factor * M / M - (r->factor - 1), D / (D - 2)));
    float grown = (float)r->factor * (float)sequence / (float)max_positions;
    grown -= (float)(r->factor - 1);
    return (float)r->theta * powf(grown, (float)(D / (D - 2)));
}

/* --- yarn: long waves are stretched, short ones kept, a ramp between --- */

/* The dim whose wave turns `turns` times over the original length. */
static double yarn_dim(const Rope *r, double turns, double length)
{
    return (double)r->dims * log(length / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

static void yarn_range(const Rope *r, double length, double *low, double *high)
{
    *low = yarn_dim(r, r->beta_fast, length);
    *high = yarn_dim(r, r->beta_slow, length);
    if (r->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, (double)(r->dims - 1));
    if (*low == *high)
        *high += 0.001;
}

static float yarn_inv(const Rope *r, int64_t max_positions, int64_t i)
{
    double low, high;
    yarn_range(r, (double)original_length(r, max_positions), &low, &high);
    float ramp = ((float)i - (float)low) / (float)(high - low);
    float keep = 1 - fminf(fmaxf(ramp, 0), 1);
    float wave = power(r->theta, i, r->dims);
    float stretched = 1 / ((float)stretch(r, max_positions) * wave);
    return stretched * (1 - keep) + 1 / wave * keep;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* --- llama3: like yarn, the ramp by wave length --- */

static float llama3_inv(const Rope *r, int64_t max_positions, int64_t i)
{
    double length = (double)original_length(r, max_positions);
    float  inv = 1 / power(r->theta, i, r->dims), factor = (float)r->factor;
    float  wave = 1 / inv * (float)(2 * M_PI);
    if (wave < (float)(length / r->high_freq_factor))
        return inv;
    if (wave > (float)(length / r->low_freq_factor))
        return inv / factor;
    float smooth = 1 / wave * (float)length - (float)r->low_freq_factor;
    smooth /= (float)(r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * inv / factor + smooth * inv;
}

/* --- longrope: a factor for each pair, one list for short texts, one for long --- */

static float longrope_inv(const Rope *r, int64_t max_positions, int64_t sequence, int64_t i)
{
    bool          is_long = sequence > original_length(r, max_positions);
    const double *factors = is_long ? r->long_factor : r->short_factor;
    return 1 / ((float)factors[i] * power(r->theta, i, r->dims));
}

static double longrope_attention(const Rope *r, int64_t max_positions)
{
    double factor = stretch(r, max_positions);
    return factor <= 1 ? 1
                       : sqrt(1 + log(factor) /
                                      log((double)original_length(r, max_positions)));
}

/* --- all kinds --- */

static float inverse_frequency(const Rope *r, int64_t max_positions, int64_t sequence,
                               int64_t i)
{
    switch (r->kind) {
    case ROPE_LINEAR:
        return 1 / power(r->theta, i, r->dims) / (float)r->factor;
    case ROPE_DYNAMIC:
        return 1 / power(dynamic_theta(r, max_positions, sequence), i, r->dims);
    case ROPE_YARN:
        return yarn_inv(r, max_positions, i);
    case ROPE_LLAMA3:
        return llama3_inv(r, max_positions, i);
    case ROPE_LONGROPE:
        return longrope_inv(r, max_positions, sequence, i);
    default:
        return 1 / power(r->theta, i, r->dims);
    }
}

/* Multiplies cosines and sines, so that scores get its square. */
static double attention_factor(const Rope *r, int64_t max_positions)
{
    double factor = stretch(r, max_positions);
    if (r->kind != ROPE_YARN && r->kind != ROPE_LONGROPE)
        return 1;
    if (r->attention_factor > 0)
        return r->attention_factor;
    if (r->kind == ROPE_LONGROPE)
        return longrope_attention(r, max_positions);
    if (r->mscale > 0 && r->mscale_all_dim > 0)
        return yarn_mscale(factor, r->mscale) / yarn_mscale(factor, r->mscale_all_dim);
    return yarn_mscale(factor, 1);
}

Status rope_rows(const Rope *r, int64_t max_positions, int64_t sequence, int64_t first,
                 int64_t n, float *cs, float *sn)
{
    int64_t half = r->dims / 2;
    float   scale = (float)attention_factor(r, max_positions);
    if (!isfinite(scale))
        FAIL(ERR_RANGE, "RoPE: attention factor %g, expected a finite number", scale);
    for (int64_t i = 0; i < half; i++) {
        float inv = inverse_frequency(r, max_positions, sequence, i);
        if (!isfinite(inv))
            FAIL(ERR_RANGE, "RoPE: frequency %lld is %g, expected a finite number",
                 (long long)i, inv);
        for (int64_t p = 0; p < n; p++) {
            float angle = (float)(first + p) * inv;
            cs[p * half + i] = cosf(angle) * scale;
            sn[p * half + i] = sinf(angle) * scale;
        }
    }
    return OK;
}

Status rope_tables(const Rope *r, int64_t max_positions, int64_t sequence, int64_t n_positions,
                   float *cs, float *sn)
{
    return rope_rows(r, max_positions, sequence, 0, n_positions, cs, sn);
}
