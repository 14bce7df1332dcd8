/* ref_cuda_case.c - a case of attention on the GPU. */
#include "tests/cuda/ref_cuda_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t width_of(const Tensor *t)
{
    return tensor_count(t) / t->shape[0];
}

static Status there(Backend *be, Tensor *to, const Tensor *from, int64_t shift)
{
    return ref_cuda_tensor(be, to, from->data, from->shape[0], width_of(from), shift);
}

/* Arrays of the backend's memory; NULL stays NULL. */
static Status array_there(Backend *be, const float **x, int64_t rows, int64_t cols)
{
    Tensor t;
    if (!*x)
        return OK;
    TRY(ref_cuda_exact(be, &t, *x, rows, cols));
    *x = t.data;
    return OK;
}

static Status run(Backend *be, Case *c, int64_t shift)
{
    Tensor    q, k, v, out;
    bool      whole;
    Attention a = c->a;
    a.batch = (Batch){c->shape.n_sequences, c->start, c->number};
    a.key_start = c->key_start;
    TRY(there(be, &q, &c->q, shift));
    TRY(there(be, &k, &c->k, shift));
    TRY(there(be, &v, &c->v, shift));
    TRY(ref_cuda_empty(be, &out, c->out.shape[0], width_of(&c->out), shift));
    TRY(array_there(be, &a.lambda_rows, c->q.shape[0], a.n_heads));
    TRY(array_there(be, &a.norm_weight, 1, case_value_dim(&a)));
    TRY(op_attention(be, &out, &q, &k, &v, &a));
    TRY(ref_cuda_read(be, c->out.data, &out, &whole));
    return whole ? OK : STATUS(ERR_RANGE, "attention wrote outside of its output");
}

Status ref_cuda_case_run(Backend *be, Case *c, int64_t shift)
{
    ArenaMark mark = backend_mark(be);
    Status    s = run(be, c, shift);
    backend_rewind(be, mark);
    return s;
}

static void fill(const Tensor *t, uint64_t *state)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t->data)[i] = fmaxf(fminf(rintf(64 * check_normal(state)), 255), -255) / 64;
}

void ref_cuda_case_fill(Case *c, uint64_t seed)
{
    fill(&c->q, &seed);
    fill(&c->k, &seed);
    c->a.scale = 0.25f;
}

bool ref_cuda_same_bits(const void *a, const void *b, size_t bytes)
{
    return getenv("CUSIM_FUZZ") || memcmp(a, b, bytes) == 0;
}
