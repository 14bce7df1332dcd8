/* record_hist.c - reading the histogram of magnitudes. */
#include <math.h>

#include "kernels/record.h"

double hist_value(int64_t bin)
{
    int exponent = (int)(bin >> 8), part = (int)(bin & 255);
    if (bin == 0)
        return 0;
    if (exponent == 0)  // subnormal: steps of 2^-134
        return ldexp(sqrt((double)part * (part + 1)), -134);
    return ldexp(sqrt((256.0 + part) * (257.0 + part)), exponent - 127 - 8);
}

double hist_quantile(const uint64_t *bins, double q)
{
    uint64_t n = 0, below = 0;
    for (int64_t b = 0; b < HIST_BINS; b++)
        n += bins[b];
    if (n == 0)
        return NAN;
    double rank = fmax(ceil(q * (double)n), 1);
    for (int64_t b = 0; b < HIST_BINS; b++) {
        below += bins[b];
        if ((double)below >= rank)
            return hist_value(b);
    }
    return NAN;  // q > 1
}
