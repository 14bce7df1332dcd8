/* choice_share.h - neighbouring requests as one batch in which their common beginnings
 * are rows only once. */
#ifndef DQ_CHOICE_SHARE_H
#define DQ_CHOICE_SHARE_H

#include "analysis/choice.h"

typedef struct {
    int64_t        first, end;   // requests
    int64_t        T;            // rows
    const int32_t *ids;          // [T]
    Branches       branches;
    int64_t        n;            // predictions, request after request
    const int32_t *rows;         // [n] of the batch
    const int32_t *targets;      // [n]
} Share;

/* The requests from `first` on that have at most n_rows rows together, but one item at
 * least: or one request, where an item is longer than that and gains little. */
MUST_USE Status share_make(Share *out, Arena *a, const Choice *c, int64_t first,
                           int64_t n_rows);

#endif
