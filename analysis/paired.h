/* paired.h - is the difference of two models on the same items more than noise? */
#ifndef DQ_PAIRED_H
#define DQ_PAIRED_H

#include <stdint.h>

typedef struct {
    int64_t n;             // items
    int64_t only_a, only_b;  // right in one only
    double  difference;    // accuracy of b minus that of a
    double  error;         // standard error of the difference, paired
    double  p;             // McNemar's test, two-sided, exact binomial
} Paired;

/* a, b [n]: 1 where right. n == 0: NaN. */
Paired paired_of(const uint8_t *a, const uint8_t *b, int64_t n);

/* Of per-item reals (log-likelihoods, NLL of windows): mean difference, its standard
 * error, and the two-sided p of a sign-flip test by the normal approximation. */
typedef struct {
    int64_t n;
    double  difference, error, p;
} PairedMean;
PairedMean paired_mean(const double *a, const double *b, int64_t n);

#endif
