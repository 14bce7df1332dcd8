/* pyrandom.h - the random numbers of Python's `random`, so that a drawing made by a
 * program written in Python can be made again.
 * Generator: MT19937, M. Matsumoto and T. Nishimura, ACM TOMACS 8 (1998), seeded by their
 * init_by_array (2002). Drawings: Random.getrandbits, _randbelow, sample of Python 3. */
#ifndef DQ_PYRANDOM_H
#define DQ_PYRANDOM_H

#include <stdint.h>

#include "kernels/arena.h"

enum { PYRANDOM_WORDS = 624 };

typedef struct {
    uint32_t word[PYRANDOM_WORDS];
    int      next;
} PyRandom;

/* random.Random(seed) */
void     pyrandom_seed(PyRandom *r, uint64_t seed);
/* getrandbits(32) */
uint32_t pyrandom_word(PyRandom *r);
/* sample(range(n), k): out [k]. CHECKs 0 <= k <= n < 2^32. */
MUST_USE Status pyrandom_sample(PyRandom *r, int64_t *out, int64_t k, int64_t n);

#endif
