/* random.h - seeded random numbers, the same on every machine.
 * splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * OOPSLA 2014): all 2^64 numbers in an order without pattern. */
#ifndef DQ_RANDOM_H
#define DQ_RANDOM_H

#include <stdint.h>

static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The state of stream number i of a seed: item i of a set does not depend on how many
 * numbers those before it took. */
static inline uint64_t random_stream(uint64_t seed, int64_t i)
{
    uint64_t state = random_bits(&seed) ^ (uint64_t)i;
    return random_bits(&state);
}

/* 0 .. n - 1, each equally likely, n >= 1: numbers past the last whole multiple of n
 * are drawn again. */
static inline int64_t random_below(uint64_t *state, int64_t n)
{
    uint64_t m = (uint64_t)n, skip = -m % m, x;   // 2^64 mod n
    do
        x = random_bits(state);
    while (x < skip);
    return (int64_t)(x % m);
}

/* order [n] in random order (Fisher and Yates). */
static inline void random_shuffle(int64_t *order, int64_t n, uint64_t *state)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = random_below(state, i + 1), keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}

#endif
