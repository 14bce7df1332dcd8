/* backend_rows.c - checks before the operations that take each row by itself: norms, RoPE,
 * gates, the residual stream. */
#include <math.h>

#include "kernels/backend_check.h"

/* One of a norm's two vectors: for a head, or for each head; data NULL: none. */
static Status check_factors(const char *op, const char *name, const Tensor *t, int64_t width,
                            int64_t row)
{
    char text[128];
    if (!t->data)
        return OK;
    if (t->dtype != DTYPE_F32 || t->n_dims != 1 || (t->shape[0] != width && t->shape[0] != row))
        FAIL(ERR_SHAPE, "%s: %s is %s %s, expected F32 [%lld]%s", op, name,
             dtype_name(t->dtype), tensor_shape_text(t, text), (long long)width,
             width == row ? "" : " or one value for each of a row");
    return OK;
}

static Status norm_rows(Backend *be, const char *op, Tensor *y, const Tensor *x, int64_t heads,
                        const Norm *n)
{
    TRY(backend_check_2d(op, "x", x, -1, -1));
    int64_t row = x->shape[1];
    if (row < 1)
        FAIL(ERR_SHAPE, "%s: x has rows of 0 values", op);
    if (heads < 1 || row % heads)
        FAIL(ERR_SHAPE, "%s: rows of %lld in %lld heads, expected a divisor", op,
             (long long)row, (long long)heads);
    TRY(backend_check_2d(op, "y", y, x->shape[0], row));
    TRY(check_factors(op, "w", &n->w, row / heads, row));
    TRY(check_factors(op, "b", &n->b, row / heads, row));
    if (n->b.data && !n->centred)
        FAIL(ERR_UNSUPPORTED, "%s: b without centring, expected a LayerNorm", op);
    if (!(n->eps >= 0 && n->eps < INFINITY))
        FAIL(ERR_RANGE, "%s: eps is %g, expected a finite number >= 0", op, (double)n->eps);
    return be->ops->norm(be, y, x, heads, n);
}

Status op_rmsnorm(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, float eps)
{
    CHECK(w->data);
    return norm_rows(be, "rmsnorm", y, x, 1, &(Norm){.w = *w, .eps = eps});
}

Status op_norm(Backend *be, Tensor *y, const Tensor *x, int64_t heads, const Norm *n)
{
    return norm_rows(be, "norm", y, x, heads, n);
}

Status op_rope(Backend *be, Tensor *x, int64_t heads, const Tensor *cs, const Tensor *sn,
               const int32_t *positions)
{
    TRY(backend_check_2d("rope", "x", x, -1, -1));
    TRY(backend_check_2d("rope", "cs", cs, -1, -1));
    TRY(backend_check_2d("rope", "sn", sn, cs->shape[0], cs->shape[1]));
    int64_t row = x->shape[1], rot = 2 * cs->shape[1];
    if (heads < 1 || row % heads || rot > row / heads)
        FAIL(ERR_SHAPE, "rope: rows of %lld in %lld heads, with %lld dims to turn in each",
             (long long)row, (long long)heads, (long long)rot);
    TRY(backend_check_values("rope", "position", positions, x->shape[0], 0, cs->shape[0]));
    return be->ops->rope(be, x, heads, cs, sn, positions);
}

Status op_glu(Backend *be, Tensor *gate, const Tensor *up, Activation act)
{
    TRY(backend_check_2d("glu", "gate", gate, -1, -1));
    if (up)
        TRY(backend_check_2d("glu", "up", up, gate->shape[0], gate->shape[1]));
    if ((unsigned)act >= N_ACTS)
        FAIL(ERR_UNSUPPORTED, "glu: unknown activation %d", (int)act);
    return be->ops->glu(be, gate, up, act);
}

Status op_poly_glu(Backend *be, Tensor *gate, const Tensor *up, const float poly[4])
{
    TRY(backend_check_2d("poly_glu", "gate", gate, -1, -1));
    if (gate->shape[1] < 1)
        FAIL(ERR_SHAPE, "poly_glu: gate has rows of 0 values");
    TRY(backend_check_2d("poly_glu", "up", up, gate->shape[0], gate->shape[1]));
    return be->ops->poly_glu(be, gate, up, poly);
}

/* Two tensors that are gone through side by side. */
static Status check_alike(const char *op, const Tensor *y, const Tensor *x)
{
    char a[128], b[128];
    bool same = x->n_dims == y->n_dims && x->dtype == DTYPE_F32 && y->dtype == DTYPE_F32;
    for (int i = 0; same && i < x->n_dims; i++)
        same = x->shape[i] == y->shape[i];
    if (!same)
        FAIL(ERR_SHAPE, "%s: %s %s to %s %s, expected F32 of one shape", op,
             dtype_name(x->dtype), tensor_shape_text(x, a), dtype_name(y->dtype),
             tensor_shape_text(y, b));
    return OK;
}

Status op_add(Backend *be, Tensor *y, const Tensor *x)
{
    TRY(check_alike("add", y, x));
    return be->ops->add(be, y, x);
}

Status op_copy(Backend *be, Tensor *y, const Tensor *x)
{
    TRY(check_alike("copy", y, x));
    return be->ops->copy(be, y, x);
}

Status op_sigmoid(Backend *be, Tensor *x)
{
    TRY(backend_check_2d("sigmoid", "x", x, -1, -1));
    return be->ops->sigmoid(be, x);
}
