/* tensor.h - a view of numbers: dtype, shape, address. Owns nothing. */
#ifndef DQ_TENSOR_H
#define DQ_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

typedef enum {
    DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F64,
    DTYPE_I8, DTYPE_U8, DTYPE_I16, DTYPE_U16,
    DTYPE_I32, DTYPE_U32, DTYPE_I64, DTYPE_U64, DTYPE_BOOL,
    N_DTYPES
} Dtype;

enum { TENSOR_MAX_DIMS = 6 };

typedef struct {
    Dtype   dtype;
    int     n_dims;                  // 0 is a scalar
    int64_t shape[TENSOR_MAX_DIMS];  // outermost first, all >= 0
    void   *data;                    // row-major, in the memory of one backend
} Tensor;

size_t      dtype_size(Dtype d);  // bytes of one item
const char *dtype_name(Dtype d);  // as safetensors spells it: "F32", "BF16"
/* ERR_UNSUPPORTED for a name that is none of ours; *out is then untouched. */
MUST_USE Status dtype_parse(Dtype *out, const char *name);

/* Items, and bytes. The shape was checked for overflow when it was made. */
int64_t tensor_count(const Tensor *t);
size_t  tensor_bytes(const Tensor *t);

Tensor tensor_1d(Dtype d, void *data, int64_t n0);
Tensor tensor_2d(Dtype d, void *data, int64_t n0, int64_t n1);

/* "[3,4]" into text of at least 128 bytes; returns text. */
const char *tensor_shape_text(const Tensor *t, char *text);

/* out[0..n) f32 from items first..first+n of t. F32, F16, BF16 only, else
 * ERR_UNSUPPORTED. t lies in host memory. */
MUST_USE Status tensor_to_f32(float *out, const Tensor *t, int64_t first, int64_t n);

#endif
