/* input_stats.h - gathers what a linear layer's inputs are like, rows after rows
 * (private to analysis). An InputStats is calibrate.h's. */
#ifndef DQ_INPUT_STATS_H
#define DQ_INPUT_STATS_H

#include "analysis/calibrate.h"

/* Zeros for inputs of K values, from a. */
MUST_USE Status input_stats_init(InputStats *s, Arena *a, int64_t K, bool with_gram);

/* Adds x [T,K] in be's memory; scratch is given back. Only the upper half of the gram is
 * kept up. ERR_RANGE names the first NaN or infinity, after `where`,
 * and its row, counted on from those that came before; s is then of no more use. */
MUST_USE Status input_stats_add(InputStats *s, Arena *scratch, Backend *be, const Tensor *x,
                                const char *where);

/* The gram's lower half. */
void input_stats_close(InputStats *s);

/* Rows first .. first + n of t [T,K], which lies in the memory of a backend. */
static inline Tensor rows_of(const Tensor *t, int64_t first, int64_t n)
{
    return tensor_2d(t->dtype, (float *)t->data + first * t->shape[1], n, t->shape[1]);
}

#endif
