/* backend_check.c - shapes and values against what an operation expects. */
#include "kernels/backend_check.h"

#include <math.h>
#include <stdio.h>

Status backend_check_2d(const char *op, const char *name, const Tensor *t, int64_t rows,
                        int64_t cols)
{
    char text[128], want[2][24] = {"any", "any"};
    if (rows >= 0)
        snprintf(want[0], sizeof want[0], "%lld", (long long)rows);
    if (cols >= 0)
        snprintf(want[1], sizeof want[1], "%lld", (long long)cols);
    bool fits = t->n_dims == 2 && (rows < 0 || t->shape[0] == rows) &&
                (cols < 0 || t->shape[1] == cols);
    if (!fits || t->dtype != DTYPE_F32)
        FAIL(ERR_SHAPE, "%s: %s is %s %s, expected F32 [%s,%s]", op, name,
             dtype_name(t->dtype), tensor_shape_text(t, text), want[0], want[1]);
    return OK;
}

Status backend_check_1d(const char *op, const char *name, const Tensor *t, int64_t n)
{
    char text[128];
    if (t->dtype != DTYPE_F32 || t->n_dims != 1 || t->shape[0] != n)
        FAIL(ERR_SHAPE, "%s: %s is %s %s, expected F32 [%lld]", op, name,
             dtype_name(t->dtype), tensor_shape_text(t, text), (long long)n);
    return OK;
}

Status backend_check_values(const char *op, const char *name, const int32_t *values, int64_t n,
                            int64_t low, int64_t high)
{
    for (int64_t i = 0; i < n; i++)
        if (values[i] < low || values[i] >= high)
            FAIL(ERR_RANGE, "%s: %s %lld is %d, expected %lld to %lld", op, name, (long long)i,
                 (int)values[i], (long long)low, (long long)high - 1);
    return OK;
}

Status backend_check_rows(const char *op, const Tensor *x)
{
    if (x->shape[0] > INT32_MAX)
        FAIL(ERR_RANGE, "%s: %lld rows, at most %d", op, (long long)x->shape[0], INT32_MAX);
    return OK;
}

Status backend_check_batch(const char *op, const Batch *batch, int64_t T)
{
    int64_t n = batch->n_sequences;
    if (n < 1 || batch->start[0] != 0 || batch->start[n] != T)
        FAIL(ERR_SHAPE, "%s: %lld sequences, expected them to cover rows 0 to %lld", op,
             (long long)n, (long long)T);
    for (int64_t b = 0; b < n; b++)
        if (batch->start[b] > batch->start[b + 1])
            FAIL(ERR_SHAPE, "%s: sequence %lld ends before it starts", op, (long long)b);
    return OK;
}
