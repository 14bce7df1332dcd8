/* rtn.h - round to nearest: codes and scales of one weight matrix.
 *
 * A group is a row of w, or scheme.group weights of one. Its weights become
 *   w' = scale * (code - zero)
 * with codes in [-2^(b-1), 2^(b-1) - 1].
 *   sym    scale = max|w| / (2^(b-1) - 1), zero = 0; code -2^(b-1) is not used
 *   asym   scale = (max - min) / (2^b - 1) with 0 inside [min, max],
 *          zero = round(-2^(b-1) - min / scale)
 * The scale is rounded to its storage dtype first and codes are fitted to what
 * is stored: code = round half to even (w / scale + zero), clamped. A group of
 * zeros gets scale 1 and codes 0. A scale that would be stored as 0 becomes the
 * smallest positive number of its dtype. */
#ifndef DQ_RTN_H
#define DQ_RTN_H

#include "kernels/half.h"
#include "kernels/size.h"
#include "quant/plan.h"

/* Groups of a row of K weights, and weights of a group. */
int64_t rtn_groups(const Scheme *s, int64_t K);
int64_t rtn_group_size(const Scheme *s, int64_t K);

/* Codes [N,K], scales and zeros [N, groups]; zeros may be NULL when symmetric.
 * Scales are as stored, widened to f32. name is for errors: ERR_SHAPE when K is
 * no multiple of the group, ERR_RANGE at the first NaN or Inf, or the first
 * scale that its dtype cannot hold; nothing is then written. */
typedef struct {
    int8_t *codes;
    float  *scales;
    int8_t *zeros;
} RtnCodes;
MUST_USE Status rtn_encode(const RtnCodes *out, const char *name, const float *w, int64_t N,
                           int64_t K, const Scheme *s);
/* Both at once: codes, and w becomes what they decode to. */
MUST_USE Status rtn_encode_fake(const RtnCodes *out, float *w, const char *name, int64_t N,
                                int64_t K, const Scheme *s, RoundError *e);

/* w [N,K] becomes w' = scale * (code - zero) in f32, which is exact for scales of
 * f16 and bf16. Errors as above; w is then untouched. e may be NULL. */
MUST_USE Status rtn_fake(float *w, const char *name, int64_t N, int64_t K, const Scheme *s,
                         RoundError *e);

/* --- the parts of it, for methods that choose scales in other ways --- */

/* The values that a group may take: scale * (code - zero), lo <= code <= hi; all
 * whole numbers but the scale. */
typedef struct {
    float scale, zero, lo, hi;
} RtnGrid;

/* Every code of scheme.bits, -2^(b-1) too. */
static inline RtnGrid rtn_grid(float scale, int zero, const Scheme *s)
{
    float lo = (float)-(1 << (s->bits - 1));
    return (RtnGrid){.scale = scale, .zero = (float)zero, .lo = lo, .hi = -1 - lo};
}

/* The grid of the definition above. False if w holds a NaN or Inf, or the scale
 * cannot be stored. */
bool rtn_fit(RtnGrid *g, const float *w, int64_t n, const Scheme *s);
/* What a loader will read back; never 0, infinite if the dtype is too narrow. */
static inline float rtn_stored_scale(float scale, Dtype d)
{
    switch (d) {
    case DTYPE_F16:
        return f16_to_f32((uint16_t)i64_max(f16_from_f32(scale), 1));
    case DTYPE_BF16:
        return bf16_to_f32((uint16_t)i64_max(bf16_from_f32(scale), 1));
    default:
        CHECK(d == DTYPE_F32);
        return scale > 0 ? scale : f32_from_bits(1);
    }
}
/* The errors of rtn_encode: OK means that rtn_fit holds for every group. */
MUST_USE Status rtn_check(const char *name, const float *w, int64_t N, int64_t K,
                          const Scheme *s);

/* Adding and taking away 1.5 * 2^23 rounds half to even: below 2^22 the sum has
 * no bits left for a fraction. Codes are below 2^7. */
static inline float rtn_code(float w, RtnGrid g)
{
    float x = w / g.scale + g.zero;
    x = x > g.lo ? x : g.lo;
    x = x < g.hi ? x : g.hi;
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

static inline float rtn_decode(float code, RtnGrid g)
{
    return g.scale * (code - g.zero);
}

#endif
