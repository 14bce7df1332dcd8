/* hadamard.c - butterflies of sums and differences: n log n instead of n^2. */
#include "quant/methods/hadamard.h"

#include <math.h>

#include "kernels/status.h"

/* a, b [n] become a + b, a - b. */
static void butterfly(double *restrict a, double *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = a[i] + b[i];
        b[i] = a[i] - b[i];
        a[i] = sum;
    }
}

void hadamard_transform(double *x, int64_t n, int64_t inner)
{
    CHECK(n > 0 && (n & (n - 1)) == 0);
    for (int64_t half = inner; half < n * inner; half *= 2)
        for (int64_t at = 0; at < n * inner; at += 2 * half)
            butterfly(x + at, x + at + half, half);
    double unit = 1 / sqrt((double)n);
    for (int64_t i = 0; i < n * inner; i++)
        x[i] *= unit;
}
