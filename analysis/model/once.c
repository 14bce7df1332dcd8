/* once.c - see once.h. */
#include "analysis/model/once.h"

#include "analysis/model/place.h"
#include "analysis/model/rest.h"

bool once_projects(const Source *s)
{
    return s->config.keys.embed_dim != s->config.keys.hidden_size;
}

static Status read_whole(float **out, Arena *scratch, const Source *s, const ModelTensor *t)
{
    *out = arena_raw(scratch, tensor_count(&t->view), sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: tensor %s", t->name);
    return source_read(*out, s, t);
}

/* Room in the backend, filled from the host. */
static Status upload(Tensor *out, Backend *be, int64_t rows, int64_t cols, const float *host)
{
    TRY(backend_tensor(be, out, 2, (int64_t[]){rows, cols}));
    return backend_upload(be, out, host);
}

/* y [V,C], in the backend, = x [V,E] p^T, on the host; stored: p [C,E], or [E,C] where
 * transposed. */
static Status multiply(Tensor *y, const float *x, const float *p, bool transposed, Backend *be,
                       const Source *s)
{
    int64_t   V = s->config.keys.vocab_size, C = s->config.keys.hidden_size;
    int64_t   E = s->config.keys.embed_dim;
    ArenaMark mark = backend_mark(be);
    Tensor    tx, tp;
    TRY(upload(&tx, be, V, E, x));
    TRY(upload(&tp, be, transposed ? E : C, transposed ? C : E, p));
    MatrixProduct product = {.m = V, .n = C, .k = E, .alpha = 1, .a = tx.data, .lda = E,
                             .b = tp.data, .ldb = transposed ? C : E, .b_t = !transposed,
                             .c = y->data, .ldc = C};
    TRY(op_product(be, &product));
    backend_rewind(be, mark);
    return OK;
}

/* --- the tables --- */

static Status load_table(Tensor *out, Backend *be, Arena *scratch, const Source *s,
                         const ModelTensor *t)
{
    ArenaMark mark = arena_mark(scratch);
    float    *x;
    TRY(read_whole(&x, scratch, s, t));
    TRY(place_tensor(be, out, &t->view, x));
    arena_rewind(scratch, mark);
    return OK;
}

static Status load_projected(Tensor *out, Backend *be, Arena *scratch, const Source *s)
{
    ArenaMark mark = arena_mark(scratch);
    float    *table, *p;
    TRY(backend_tensor(be, out, 2, (int64_t[]){s->config.keys.vocab_size,
                                               s->config.keys.hidden_size}));
    TRY(read_whole(&table, scratch, s, source_tensor(s, 0, ROLE_EMBED)));
    TRY(read_whole(&p, scratch, s, source_tensor(s, 0, ROLE_PROJECT_IN)));
    TRY(multiply(out, table, p, false, be, s));
    arena_rewind(scratch, mark);
    return OK;
}

Status once_load(Model *m, Arena *scratch, const Source *s)
{
    const ModelTensor *positions = source_tensor(s, 0, ROLE_POSITIONS);
    Backend           *be = m->backend;
    bool               near = backend_on_host(be) || m->streamed;
    if (once_projects(s))
        TRY(load_projected(&m->embed, be, scratch, s));
    else if (!near || !m->loader)
        TRY(load_table(&m->embed, be, scratch, s, source_tensor(s, 0, ROLE_EMBED)));
    if (positions)
        TRY(load_table(&m->positions, be, scratch, s, positions));
    return rest_last_norm(&m->norm, &m->has_norm, be, scratch, s);
}

Status once_head(const float **w, Arena *scratch, Backend *be, const Source *s)
{
    int64_t   V = s->config.keys.vocab_size, C = s->config.keys.hidden_size;
    ArenaMark mark = backend_mark(be);
    Tensor    y;
    float    *p, *out;
    if (!once_projects(s))
        return OK;
    out = arena_raw(scratch, V * C, sizeof *out);
    if (!out)
        FAIL(ERR_MEMORY, "out of memory: a head of %lld x %lld", (long long)V, (long long)C);
    TRY(read_whole(&p, scratch, s, source_tensor(s, 0, ROLE_PROJECT_OUT)));
    TRY(backend_tensor(be, &y, 2, (int64_t[]){V, C}));
    TRY(multiply(&y, *w, p, true, be, s));
    TRY(backend_download(be, out, &y));
    backend_rewind(be, mark);
    *w = out;
    return OK;
}
