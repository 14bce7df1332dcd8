/* valuemap.h - which rows of v belong to which columns of o.
 *
 * Map m of output head h reads the v head head[h * n_maps + m], rows head * head_dim
 * and on; that is columns (h * n_maps + m) * head_dim and on of o. What output head h
 * reads in all its maps is a wide head, head_dim * n_maps wide. */
#ifndef DQ_VALUEMAP_H
#define DQ_VALUEMAP_H

#include "analysis/layers.h"

typedef struct {
    int64_t        n_heads, n_maps, head_dim;
    int64_t        n_values;  // v heads
    const int64_t *head;      // [n_heads, n_maps]
    int64_t        n_wide;
    const int64_t *wide;      // [n_wide, n_maps] different wide heads
    bool           paired;    // each v head is in one wide head, at one place
} ValueMap;

/* out's arrays from a. */
MUST_USE Status valuemap_of(ValueMap *out, Arena *a, const Layers *l);
/* Finds the wide heads of map's other fields: wide, n_wide, paired. */
MUST_USE Status valuemap_pair(ValueMap *map, Arena *a);

#endif
