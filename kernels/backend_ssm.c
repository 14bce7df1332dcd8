/* backend_ssm.c - checks before the operations that run along a sequence: the convolution
 * and the scan of a state space model. */
#include "kernels/backend_check.h"

/* A state belongs to one sequence. */
static Status check_state(const char *op, const Tensor *state, const Batch *batch,
                          int64_t rows, int64_t E)
{
    if (!state)
        return OK;
    if (batch->n_sequences != 1)
        FAIL(ERR_SHAPE, "%s: a state for %lld sequences, expected one", op,
             (long long)batch->n_sequences);
    return backend_check_2d(op, "state", state, rows, E);
}

Status op_convolve(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, const Tensor *b,
                   const Batch *batch, Tensor *state)
{
    TRY(backend_check_2d("convolve", "x", x, -1, -1));
    TRY(backend_check_rows("convolve", x));
    int64_t T = x->shape[0], E = x->shape[1];
    TRY(backend_check_2d("convolve", "y", y, T, E));
    TRY(backend_check_2d("convolve", "w", w, E, -1));
    if (w->shape[1] < 1)
        FAIL(ERR_SHAPE, "convolve: w has rows of 0 values");
    if (b->data)
        TRY(backend_check_1d("convolve", "b", b, E));
    TRY(backend_check_batch("convolve", batch, T));
    TRY(check_state("convolve", state, batch, w->shape[1] - 1, E));
    CHECK(T == 0 || E == 0 || y->data != x->data);
    return be->ops->convolve(be, y, x, w, b, batch, state);
}

Status op_scan(Backend *be, Tensor *y, const Tensor *u, const Tensor *dt, const Tensor *bc,
               const Scan *s, const Batch *batch, Tensor *state)
{
    TRY(backend_check_2d("scan", "u", u, -1, -1));
    TRY(backend_check_rows("scan", u));
    int64_t T = u->shape[0], E = u->shape[1], N = s->n_states;
    if (N < 1 || N > INT32_MAX)
        FAIL(ERR_SHAPE, "scan: %lld states, expected 1 to %d", (long long)N, INT32_MAX);
    TRY(backend_check_2d("scan", "y", y, T, E));
    TRY(backend_check_2d("scan", "dt", dt, T, E));
    TRY(backend_check_2d("scan", "bc", bc, T, 2 * N));
    TRY(backend_check_2d("scan", "A", &s->a, E, N));
    TRY(backend_check_1d("scan", "D", &s->d, E));
    TRY(backend_check_1d("scan", "dt_bias", &s->dt_bias, E));
    TRY(backend_check_batch("scan", batch, T));
    TRY(check_state("scan", state, batch, 2 * N, E));
    return be->ops->scan(be, y, u, dt, bc, s, batch, state);
}
