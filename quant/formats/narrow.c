/* narrow.c - rounds f32 to the dtype of a file and minds what does not fit. */
#include "quant/formats/narrow.h"

#include "kernels/halves.h"
#include "kernels/size.h"

enum { CHUNK = 16384 };  // numbers a thread takes at once

int64_t narrow_f32(void *out, Dtype d, const float *x, int64_t n)
{
    unsigned char *bytes = out;
    size_t         size = dtype_size(d);
    int64_t        bad = n;
#pragma omp parallel for schedule(static) reduction(min : bad) if (n > 16 * CHUNK)
    for (int64_t first = 0; first < n; first += CHUNK) {
        unsigned char *at = bytes + (size_t)first * size;
        if (!halves_from_f32(at, d, x + first, i64_min(CHUNK, n - first)))
            bad = i64_min(bad, first);
    }
    /* The chunk is known: look for the number in it. */
    unsigned char one[4];
    while (bad < n && halves_from_f32(one, d, x + bad, 1))
        bad++;
    return bad;
}
