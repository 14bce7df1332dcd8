/* once.c - see once.h. */
#include "analysis/model/once.h"

#include "analysis/model/place.h"
#include "analysis/model/rest.h"

bool tables_project(const Source *s)
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

/* y [V,C] = x [V,E] p^T; stored: p [C,E], or [E,C] where transposed. */
static Status multiply(float *y, const float *x, const float *p, bool transposed, Backend *be,
                       const Source *s)
{
    int64_t       C = s->config.keys.hidden_size, E = s->config.keys.embed_dim;
    MatrixProduct product = {.m = s->config.keys.vocab_size, .n = C, .k = E, .alpha = 1,
                             .a = x, .lda = E, .b = p, .ldb = transposed ? C : E,
                             .b_t = !transposed, .c = y, .ldc = C};
    return op_product(be, &product);
}

/* --- the tables --- */

static Status load_table(Tensor *out, Backend *be, Arena *scratch, float *room,
                         const Source *s, const ModelTensor *t)
{
    ArenaMark mark = arena_mark(scratch);
    if (!room)
        TRY(read_whole(&room, scratch, s, t));
    else
        TRY(source_read(room, s, t));
    TRY(place_tensor(be, out, &t->view, room));
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
    TRY(multiply(out->data, table, p, false, be, s));
    arena_rewind(scratch, mark);
    return OK;
}

Status model_tables(Model *m, Arena *scratch, float *room, const Source *s)
{
    const ModelTensor *positions = source_tensor(s, 0, ROLE_POSITIONS);
    Backend           *be = m->backend;
    if (tables_project(s))
        TRY(load_projected(&m->embed, be, scratch, s));
    else
        TRY(load_table(&m->embed, be, scratch, room, s, source_tensor(s, 0, ROLE_EMBED)));
    if (positions)
        TRY(load_table(&m->positions, be, scratch, room, s, positions));
    return rest_last_norm(&m->norm, &m->has_norm, be, scratch, s);
}

Status tables_head(const float **w, Arena *scratch, Backend *be, const Source *s)
{
    int64_t V = s->config.keys.vocab_size, C = s->config.keys.hidden_size;
    float  *p, *out;
    if (!tables_project(s))
        return OK;
    out = arena_raw(scratch, V * C, sizeof *out);
    if (!out)
        FAIL(ERR_MEMORY, "out of memory: a head of %lld x %lld", (long long)V, (long long)C);
    TRY(read_whole(&p, scratch, s, source_tensor(s, 0, ROLE_PROJECT_OUT)));
    TRY(multiply(out, *w, p, true, be, s));
    *w = out;
    return OK;
}
