/* valuemap.h - which rows of v belong to which columns of o.
 *
 * Part p of what output head h reads is the v head head[h * n_parts + p], rows
 * head * head_dim and on; that is columns (h * n_parts + p) * head_dim and on of o. All
 * its parts are a wide head, head_dim * n_parts wide: two in most differential models. */
#ifndef DQ_VALUEMAP_H
#define DQ_VALUEMAP_H

#include "analysis/layers.h"

typedef struct {
    int64_t        n_heads, n_parts, head_dim;
    int64_t        n_values;  // v heads
    const int64_t *head;      // [n_heads, n_parts]
    int64_t        n_wide;
    const int64_t *wide;      // [n_wide, n_parts] different wide heads
    bool           paired;    // each v head is in one wide head, at one place
} ValueMap;

/* Of models with attention in all layers, v a matrix of its own. out's arrays from a. */
MUST_USE Status valuemap_of(ValueMap *out, Arena *a, const Layers *l);
/* Finds the wide heads of map's other fields: wide, n_wide, paired. */
MUST_USE Status valuemap_pair(ValueMap *map, Arena *a);

#endif
