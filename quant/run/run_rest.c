/* run_rest.c - embedding, final norm, head, and whatever no layer wrote. */
#include "kernels/size.h"
#include "quant/run/run.h"

enum { ROWS_AT_ONCE = 1024 };

LayerMatrix run_head(const Run *r)
{
    const ModelTensor *head = layers_head(&r->layers);
    const int64_t     *shape = (head ? head : layers_embed(&r->layers))->view.shape;
    return (LayerMatrix){.name = layers_head_name(&r->layers), .n = shape[0], .k = shape[1]};
}

bool run_codes_head(const Run *r)
{
    const PlanEntry *e = plan_find(&r->plan, layers_head_name(&r->layers));
    return e && e->scheme.bits;
}

static Status copy_rest(Run *r)
{
    const ModelInfo *info = &r->layers.info;
    for (const ModelTensor *t = info->tensors; t < info->tensors + info->n_tensors; t++)
        if (!export_has(r->export, t->name))
            TRY(export_copy(r->export, t->name));
    return OK;
}

/* Rows first .. first + n of the embedding, or with norm of the head, as OUT has them. */
static Status table_rows(float *x, Run *r, const ModelTensor *t, const float *norm,
                         int64_t first, int64_t n)
{
    TRY(layers_read_rows(x, &r->layers, t, first, n));
    if (!r->o->rotate)
        return OK;
    return norm ? rotate_head(x, n, norm, &r->r1, &r->scratch)
                : rotate_embed(x, n, &r->r1, &r->scratch);
}

static Status export_table(Run *r, const ModelTensor *t, const char *name, const float *norm)
{
    ArenaMark mark = arena_mark(&r->scratch);
    int64_t   V = t->view.shape[0], C = t->view.shape[1];
    float    *x;
    ARENA_NEW(x, &r->scratch, ROWS_AT_ONCE * C);
    for (int64_t first = 0; first < V; first += ROWS_AT_ONCE) {
        int64_t n = i64_min(ROWS_AT_ONCE, V - first);
        TRY(table_rows(x, r, t, norm, first, n));
        TRY(export_floats(r->export, name, x, first, n));
    }
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status code_head(Run *r, const ModelTensor *t, const float *norm)
{
    ArenaMark     mark = arena_mark(&r->scratch);
    LayerMatrix   m = run_head(r);
    const Scheme *s = run_scheme(r, m.name);
    RtnCodes      codes;
    ARENA_NEW(m.w, &r->scratch, m.n * m.k);
    TRY(table_rows(m.w, r, t, norm, 0, m.n));
    TRY(run_codes(&codes, &r->scratch, s, m.n, m.k));
    TRY(run_encode(&codes, &r->head, r, &m, s, NULL));
    TRY(export_codes(r->export, m.name, &codes));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* The final norm goes into the head, which no longer is the embedding. */
static Status turn_ends(Run *r)
{
    const ModelTensor *embed = layers_embed(&r->layers), *norm = layers_norm(&r->layers);
    const ModelTensor *head = layers_head(&r->layers) ? layers_head(&r->layers) : embed;
    int64_t            C = r->layers.info.config.hidden;
    ArenaMark          mark = arena_mark(&r->scratch);
    float             *w;
    ARENA_NEW(w, &r->scratch, C);
    TRY(layers_read_tensor(w, &r->layers, norm));
    TRY(run_codes_head(r) ? code_head(r, head, w)
                          : export_table(r, head, layers_head_name(&r->layers), w));
    TRY(export_table(r, embed, embed->name, NULL));
    for (int64_t c = 0; c < C; c++)
        w[c] = 1;
    TRY(export_floats(r->export, norm->name, w, 0, C));
    arena_rewind(&r->scratch, mark);
    return OK;
}

Status run_rest(Run *r)
{
    if (r->o->rotate)
        TRY(turn_ends(r));
    else if (run_codes_head(r))
        TRY(code_head(r, layers_head(&r->layers), NULL));
    return copy_rest(r);
}
