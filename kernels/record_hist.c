/* record_hist.c - reading the histogram of magnitudes. */
#include <math.h>
#include <string.h>

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

Status hist_init(Hist *h, Arena *a)
{
    *h = (Hist){.bins = arena_sparse(a, HIST_BINS, sizeof *h->bins)};
    if (!h->bins)
        FAIL(ERR_MEMORY, "out of memory: a histogram of %d bins", HIST_BINS);
    return OK;
}

void hist_add(Hist *h, int64_t bin, uint64_t n)
{
    int64_t octave = bin / HIST_OCTAVE;
    if (n == 0)
        return;
    if (!h->used[octave])
        memset(h->bins + octave * HIST_OCTAVE, 0, HIST_OCTAVE * sizeof *h->bins);
    h->used[octave] = true;
    h->bins[bin] += n;
}

int64_t hist_next(const Hist *h, int64_t bin)
{
    while (bin < HIST_BINS) {
        if (!h->used[bin / HIST_OCTAVE])
            bin = (bin / HIST_OCTAVE + 1) * HIST_OCTAVE;
        else if (h->bins[bin])
            return bin;
        else
            bin++;
    }
    return HIST_BINS;
}

void hist_merge(Hist *into, const Hist *from)
{
    for (int64_t b = hist_next(from, 0); b < HIST_BINS; b = hist_next(from, b + 1))
        hist_add(into, b, from->bins[b]);
}

bool hist_equal(const Hist *a, const Hist *b)
{
    return memcmp(a->bins, b->bins, HIST_BINS * sizeof *a->bins) == 0;
}

double hist_quantile(const Hist *h, double q)
{
    uint64_t n = 0, below = 0;
    for (int64_t b = hist_next(h, 0); b < HIST_BINS; b = hist_next(h, b + 1))
        n += h->bins[b];
    if (n == 0)
        return NAN;
    double rank = fmax(ceil(q * (double)n), 1);
    for (int64_t b = hist_next(h, 0); b < HIST_BINS; b = hist_next(h, b + 1)) {
        below += h->bins[b];
        if ((double)below >= rank)
            return hist_value(b);
    }
    return NAN;  // q > 1
}
