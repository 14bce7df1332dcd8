/* cache.h - what one sequence leaves for its later positions: keys, values, states. */
#ifndef DQ_CACHE_H
#define DQ_CACHE_H

#include "analysis/probe.h"

int64_t cache_length(const Cache *c);
/* ERR_RANGE when n more positions do not fit. */
MUST_USE Status cache_reserve(const Cache *c, int64_t n);
/* Views of one layer: the n new rows to be written, and all rows with them. */
void cache_views(const Cache *c, int64_t layer, int64_t n, Tensor *k_new, Tensor *v_new,
                 Tensor *k_all, Tensor *v_all);
/* Of a Mamba layer: the last rows of its convolution, and the state of its scan. */
void cache_states(Cache *c, int64_t layer, Tensor **window, Tensor **state);
void cache_advance(Cache *c, int64_t n);

#endif
