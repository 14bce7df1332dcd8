/* tensor.c - sizes, names and conversion of dtypes. */
#include "kernels/tensor.h"

#include <stdio.h>
#include <string.h>

#include "kernels/halves.h"

static const struct {
    const char *name;
    size_t      size;
} DTYPES[N_DTYPES] = {
    [DTYPE_F32] = {"F32", 4}, [DTYPE_F16] = {"F16", 2}, [DTYPE_BF16] = {"BF16", 2},
    [DTYPE_F64] = {"F64", 8}, [DTYPE_I8] = {"I8", 1},   [DTYPE_U8] = {"U8", 1},
    [DTYPE_I16] = {"I16", 2}, [DTYPE_U16] = {"U16", 2}, [DTYPE_I32] = {"I32", 4},
    [DTYPE_U32] = {"U32", 4}, [DTYPE_I64] = {"I64", 8}, [DTYPE_U64] = {"U64", 8},
    [DTYPE_BOOL] = {"BOOL", 1},
};

size_t dtype_size(Dtype d)
{
    return DTYPES[d].size;
}

const char *dtype_name(Dtype d)
{
    return DTYPES[d].name;
}

Status dtype_parse(Dtype *out, const char *name)
{
    for (int d = 0; d < N_DTYPES; d++)
        if (strcmp(name, DTYPES[d].name) == 0) {
            *out = (Dtype)d;
            return OK;
        }
    FAIL(ERR_UNSUPPORTED, "unknown dtype \"%.40s\"", name);
}

int64_t tensor_count(const Tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

size_t tensor_bytes(const Tensor *t)
{
    return (size_t)tensor_count(t) * dtype_size(t->dtype);
}

Tensor tensor_1d(Dtype d, void *data, int64_t n0)
{
    return (Tensor){d, 1, {n0}, data};
}

Tensor tensor_2d(Dtype d, void *data, int64_t n0, int64_t n1)
{
    return (Tensor){d, 2, {n0, n1}, data};
}

const char *tensor_shape_text(const Tensor *t, char *text)
{
    int n = snprintf(text, 128, "[");
    for (int i = 0; i < t->n_dims; i++)
        n += snprintf(text + n, (size_t)(128 - n), "%s%lld", i ? "," : "",
                      (long long)t->shape[i]);
    snprintf(text + n, (size_t)(128 - n), "]");
    return text;
}

Status tensor_to_f32(float *out, const Tensor *t, int64_t first, int64_t n)
{
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        FAIL(ERR_UNSUPPORTED, "dtype %s where F32, F16 or BF16 is needed",
             dtype_name(t->dtype));
    halves_to_f32(out, t->dtype, (const char *)t->data + (size_t)first * dtype_size(t->dtype),
                  n);
    return OK;
}
