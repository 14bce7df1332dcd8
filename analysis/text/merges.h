/* merges.h - which two tokens become which, and when.
 * Also answers whether any merge could join two neighbours: a filter with false
 * alarms, never misses. */
#ifndef DQ_TEXT_MERGES_H
#define DQ_TEXT_MERGES_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/text/vocab.h"

typedef struct {
    uint64_t pair;    // left id in the high half; UINT64_MAX: empty
    int32_t  rank;    // lower goes first
    int32_t  result;  // id
} Merge;

typedef struct {
    Merge    *slot;     // open addressing
    uint64_t  mask;     // slots - 1, slots a power of two
    uint64_t *joins;    // bits by hash of two characters
    uint64_t *edge;     // [vocab size] first character of a token << 32 | its last
} Merges;

/* Empty, with room for n merges of tokens of v (all of them added before). */
MUST_USE Status merges_init(Merges *m, Arena *a, const Vocab *v, int64_t n);
/* The same pair again takes the new rank, as in the library. */
void         merges_add(Merges *m, int32_t left, int32_t right, int32_t rank, int32_t result);
const Merge *merges_find(const Merges *m, int32_t left, int32_t right);

static inline uint64_t merges_mix(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 32;
}

enum { MERGES_JOIN_BITS = 1 << 20 };

/* May some merge reach across the border of these neighbours? Every token on
 * the left that could be built ends in left's last character, every one on the
 * right begins with right's first. */
static inline bool merges_may_join(const Merges *m, int32_t left, int32_t right)
{
    uint64_t key = m->edge[left] << 32 | m->edge[right] >> 32;
    uint64_t bit = merges_mix(key) & (MERGES_JOIN_BITS - 1);
    return m->joins[bit / 64] >> bit % 64 & 1;
}

#endif
