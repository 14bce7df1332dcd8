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

void hist_use(Hist *h, int64_t first, int64_t end)
{
    bool empty = h->first == h->end;
    h->first = empty || first < h->first ? first : h->first;
    h->end = empty || end > h->end ? end : h->end;
}

void hist_add(Hist *h, int64_t bin, uint64_t n)
{
    if (n == 0)
        return;
    hist_use(h, bin, bin + 1);
    h->bins[bin] += n;
}

void hist_merge(Hist *into, const Hist *from)
{
    for (int64_t b = from->first; b < from->end; b++)
        hist_add(into, b, from->bins[b]);
}

bool hist_equal(const Hist *a, const Hist *b)
{
    return memcmp(a->bins, b->bins, HIST_BINS * sizeof *a->bins) == 0;
}

double hist_quantile(const Hist *h, double q)
{
    uint64_t n = 0, below = 0;
    for (int64_t b = h->first; b < h->end; b++)
        n += h->bins[b];
    if (n == 0)
        return NAN;
    double rank = fmax(ceil(q * (double)n), 1);
    for (int64_t b = h->first; b < h->end; b++) {
        below += h->bins[b];
        if ((double)below >= rank)
            return hist_value(b);
    }
    return NAN;  // q > 1
}
