/* paired.c - tests on the same items: McNemar's, exact, and the sign-flip test. */
#include "analysis/paired.h"

#include <math.h>

/* P(X <= k) for X ~ Binomial(n, 1/2), 2k <= n. The last term is the largest: from its
 * logarithm, then downwards by C(n,i-1) / C(n,i) = i / (n - i + 1), so that nothing
 * underflows that counts. */
static double lower_tail(int64_t k, int64_t n)
{
    double log_last = lgamma((double)n + 1) - lgamma((double)k + 1) -
                      lgamma((double)(n - k) + 1) - (double)n * log(2);
    double term = 1, sum = 1;
    for (int64_t i = k; i > 0 && term > 1e-18 * sum; i--) {
        term *= (double)i / (double)(n - i + 1);
        sum += term;
    }
    return exp(log_last) * sum;
}

/* Under the hypothesis each item that only one got right is either's with 1/2. */
static double mcnemar(int64_t only_a, int64_t only_b)
{
    int64_t n = only_a + only_b, k = only_a < only_b ? only_a : only_b;
    return 2 * k >= n ? 1 : fmin(1, 2 * lower_tail(k, n));
}

Paired paired_of(const uint8_t *a, const uint8_t *b, int64_t n)
{
    Paired p = {.n = n, .difference = NAN, .error = NAN, .p = NAN};
    for (int64_t i = 0; i < n; i++) {
        p.only_a += a[i] && !b[i];
        p.only_b += b[i] && !a[i];
    }
    if (n == 0)
        return p;
    double N = (double)n, d = (double)(p.only_b - p.only_a) / N;
    p.difference = d;
    /* Of the items' differences, each -1, 0 or 1: sample stddev / sqrt(n). */
    if (n > 1)
        p.error = sqrt(fmax(0, (double)(p.only_a + p.only_b) - N * d * d) / (N - 1) / N);
    p.p = mcnemar(p.only_a, p.only_b);
    return p;
}

PairedMean paired_mean(const double *a, const double *b, int64_t n)
{
    PairedMean m = {n, NAN, NAN, NAN};
    double     sum = 0, squares = 0, spread = 0;
    if (n == 0)
        return m;
    for (int64_t i = 0; i < n; i++) {
        double d = b[i] - a[i];
        sum += d;
        squares += d * d;
    }
    m.difference = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = b[i] - a[i] - m.difference;
        spread += d * d;
    }
    if (n > 1)
        m.error = sqrt(spread / (double)(n - 1) / (double)n);
    /* Were every sign a coin's, the sum would have mean 0 and variance `squares`. */
    m.p = squares == 0 ? 1 : erfc(fabs(sum) / sqrt(2 * squares));
    return m;
}
