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

#include "quant/plan.h"

/* Groups of a row of K weights. */
int64_t rtn_groups(const Scheme *s, int64_t K);

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

/* w [N,K] becomes w' = scale * (code - zero) in f32, which is exact for scales of
 * f16 and bf16. Errors as above; w is then untouched. e may be NULL. */
MUST_USE Status rtn_fake(float *w, const char *name, int64_t N, int64_t K, const Scheme *s,
                         RoundError *e);

#endif
