/* rounding_parts.h - loops over weights for one instruction set; private to rounding.c and
 * rtn.c. */
#ifndef DQ_ROUNDING_PARTS_H
#define DQ_ROUNDING_PARTS_H

#include "quant/methods/rounding.h"
#include "quant/methods/rtn.h"

/* Groups of n weights, one after another in w. Each of the others may be NULL. */
typedef struct {
    const float  *w;
    int64_t       n;
    const Scheme *scheme;
    int8_t       *codes;
    float        *scales;
    int8_t       *zeros;
    float        *back;    // what codes decode to; may be w
    RoundSums    *sums;    // added to; each group begins with lane 0
} RoundGroups;

typedef struct {
    void (*add)(RoundSums *s, const float *w, const float *v, int64_t n);
    /* The grid of one group; false as rtn_fit. */
    bool (*fit)(RtnGrid *g, const float *w, int64_t n, const Scheme *s);
    /* The first of `groups` that cannot be fitted; groups where all can. */
    int64_t (*first_bad)(const float *w, int64_t n, int64_t groups, const Scheme *s);
    /* Stops at the first that cannot be fitted; how many were rounded. */
    int64_t (*round)(const RoundGroups *r, int64_t groups);
    /* One group onto a grid that is given; scales and zeros are not written. */
    void (*onto)(const RoundGroups *r, RtnGrid g);
} RoundingIsa;
extern const RoundingIsa rounding_plain, rounding_avx2, rounding_avx512;
const RoundingIsa *rounding_isa(void);

#endif
