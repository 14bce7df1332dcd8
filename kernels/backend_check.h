/* backend_check.h - checks that the operations of backend*.c share, and the sentences
 * they fail with. op is the operation's name, name the argument's. */
#ifndef DQ_BACKEND_CHECK_H
#define DQ_BACKEND_CHECK_H

#include "kernels/backend.h"

/* t [rows,cols] or [n] of f32, else ERR_SHAPE; -1 stands for any. */
MUST_USE Status backend_check_2d(const char *op, const char *name, const Tensor *t,
                                 int64_t rows, int64_t cols);
MUST_USE Status backend_check_1d(const char *op, const char *name, const Tensor *t, int64_t n);
/* Every of values[0..n) in [low,high), else ERR_RANGE. */
MUST_USE Status backend_check_values(const char *op, const char *name, const int32_t *values,
                                     int64_t n, int64_t low, int64_t high);
/* Rows are counted in int32_t, else ERR_RANGE. */
MUST_USE Status backend_check_rows(const char *op, const Tensor *x);
/* Sequences that cover exactly rows 0 .. T, else ERR_SHAPE. */
MUST_USE Status backend_check_batch(const char *op, const Batch *batch, int64_t T);

#endif
