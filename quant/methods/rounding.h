/* rounding.h - what rounding did to weights: sums over many, in fixed lanes, so that the
 * same numbers in the same order give the same bits with every instruction set. */
#ifndef DQ_ROUNDING_H
#define DQ_ROUNDING_H

#include "quant/plan.h"

enum { ROUND_LANES = 8 };

typedef struct {
    double error2[ROUND_LANES], sum2[ROUND_LANES];
} RoundSums;

/* Adds n weights w that became v; number i goes to lane i % ROUND_LANES. */
void       rounding_add(RoundSums *s, const float *w, const float *v, int64_t n);
RoundError rounding_total(const RoundSums *s);

#endif
