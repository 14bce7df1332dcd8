/* ref_norm.c - op_norm in double. */
#include "tests/kernels/ref_norm.h"

#include <math.h>

#include "tests/kernels/ref_ops.h"
#include "tests/kernels/ref_ssm.h"

Norm ref_norm_of(Arena *a, const NormShape *s)
{
    int64_t n = s->each ? s->width * s->heads : s->width;
    Norm    norm = {.eps = 1e-5f, .centred = s->centred};
    if (s->with_w)
        norm.w = tensor_1d(DTYPE_F32, ref_normal(a, 1, n, 21).data, n);
    if (s->with_b)
        norm.b = tensor_1d(DTYPE_F32, ref_normal(a, 1, n, 22).data, n);
    return norm;
}

Tensor ref_norm_input(Arena *a, const NormShape *s, int64_t T)
{
    Tensor x = ref_normal(a, T, s->width * s->heads, 7);
    for (int64_t i = 0; i < tensor_count(&x); i++)
        ((float *)x.data)[i] += s->mean;
    return x;
}

static const float *vector_of(const Tensor *t, const NormShape *s, int64_t h)
{
    const float *p = t->data;
    return p ? p + (s->each ? h * s->width : 0) : NULL;
}

enum { MOST = 5120 };  // the widest head

/* want [width] */
static void ref_head(double *want, const float *x, const Norm *n, const NormShape *s,
                     int64_t h)
{
    static const float ONES[MOST] = {[0 ... MOST - 1] = 1};
    const float *w = vector_of(&n->w, s, h), *b = vector_of(&n->b, s, h);
    if (s->centred)
        ref_layernorm(want, x, w, b, s->width, n->eps);
    else
        ref_rmsnorm(want, x, w ? w : ONES, s->width, n->eps);
}

/* Each value is within so many roundings: LayerNorm stays in double to the last, RMS rounds
 * its factor and two products. */
static bool within_roundings(const float *y, const double *want, const NormShape *s)
{
    double rounding = s->centred ? 0x1p-24 : 3 * 0x1p-24;
    for (int64_t i = 0; i < s->width; i++) {
        /* 1e-15: the last sum of a LayerNorm cancels */
        if (!(fabs((double)y[i] - want[i]) <= fabs(want[i]) * rounding * 1.001 + 1e-15))
            return false;
    }
    return true;
}

bool ref_norm_agrees(const float *y, const Tensor *x, const Norm *n, const NormShape *s)
{
    double want[MOST];
    for (int64_t i = 0; i < tensor_count(x) / s->width; i++) {
        ref_head(want, (float *)x->data + i * s->width, n, s, i % s->heads);
        if (!within_roundings(y + i * s->width, want, s))
            return false;
    }
    return true;
}
