/* ref_stats.h - the statistics of calibrate.h from rows at hand, by plain sums. */
#ifndef DQ_REF_STATS_H
#define DQ_REF_STATS_H

#include "analysis/calibrate.h"

/* Of x [T,K], with gram, from a. */
void ref_stats(InputStats *out, Arena *a, const double *x, int64_t T, int64_t K);
/* Largest difference of a number of theirs over the largest of its kind; NaN counts. */
double ref_stats_error(const InputStats *a, const InputStats *b);

#endif
