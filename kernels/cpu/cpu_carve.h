/* cpu_carve.h - several arrays in one piece of memory (cpu_scratch).
 * A function that takes all its arrays from a Carve runs twice: with base NULL
 * it only learns how many bytes they need, with memory it places them. */
#ifndef DQ_CPU_CARVE_H
#define DQ_CPU_CARVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/size.h"

typedef struct {
    char  *base;
    size_t used;
    bool   overflow;  // the sizes do not fit size_t
} Carve;

/* n items, aligned to 64, not zeroed; NULL while base is. */
static inline void *carve(Carve *c, int64_t n, size_t size)
{
    size_t bytes = 0, start = c->used;
    c->overflow = c->overflow || n < 0 || !size_mul((size_t)n, size, &bytes) ||
                  bytes > SIZE_MAX / 4 - start;
    if (c->overflow)
        return NULL;
    c->used = start + (bytes + 63) / 64 * 64;
    return c->base ? c->base + start : NULL;
}

/* p = n items of p's own type. */
#define CARVE(p, c, n) ((p) = carve((c), (n), sizeof *(p)))

#endif
