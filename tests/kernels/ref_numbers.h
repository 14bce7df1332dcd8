/* ref_numbers.h - numbers of a golden JSON file, without a JSON library. */
#ifndef REF_NUMBERS_H
#define REF_NUMBERS_H

#include <stdint.h>

#include "kernels/status.h"

/* out[0..n) from the value of "key" in a file below tests/: a number or nested
 * lists of numbers, brackets ignored. ERR_FORMAT if there are not n. */
MUST_USE Status ref_numbers(double *out, int64_t n, const char *file, const char *key);
MUST_USE Status ref_floats(float *out, int64_t n, const char *file, const char *key);

#endif
