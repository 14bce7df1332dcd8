/* run_rest.c - embedding, final norm, head, and whatever no layer wrote. */
#include "kernels/size.h"
#include "quant/run/run.h"

enum { ROWS_AT_ONCE = 1024 };

bool run_codes_head(const Run *r)
{
    const PlanEntry *e = plan_find(&r->plan, RUN_HEAD);
    return e && e->scheme.bits;
}

/* Tensors that need more than a copy. */
static bool is_made(const Run *r, const ModelTensor *t)
{
    if (t == layers_head(&r->layers) && (r->o->rotate || run_codes_head(r)))
        return true;
    return r->o->rotate && (t == layers_embed(&r->layers) || t == layers_norm(&r->layers));
}

static Status copy_rest(Run *r)
{
    const ModelInfo *info = &r->layers.info;
    for (const ModelTensor *t = info->tensors; t < info->tensors + info->n_tensors; t++)
        if (!is_made(r, t) && !export_has(r->export, t->name))
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
    const Scheme *s = run_scheme(r, RUN_HEAD);
    LayerMatrix   m = {.name = RUN_HEAD, .n = t->view.shape[0], .k = t->view.shape[1]};
    RtnCodes      codes;
    ARENA_NEW(m.w, &r->scratch, m.n * m.k);
    TRY(table_rows(m.w, r, t, norm, 0, m.n));
    TRY(run_codes(&codes, &r->scratch, s, m.n, m.k));
    TRY(run_encode(&codes, &r->head, r, &m, s, NULL));
    TRY(export_codes(r->export, RUN_HEAD, &codes));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* Rotated: the final norm goes into the head, which no longer is the embedding. */
static Status make_ends(Run *r)
{
    const ModelTensor *embed = layers_embed(&r->layers), *norm = layers_norm(&r->layers);
    const ModelTensor *head = layers_head(&r->layers);
    int64_t            C = r->layers.info.config.hidden;
    ArenaMark          mark = arena_mark(&r->scratch);
    float             *w;
    ARENA_NEW(w, &r->scratch, C);
    TRY(layers_read_tensor(w, &r->layers, norm));
    if (run_codes_head(r))
        TRY(code_head(r, head ? head : embed, w));
    else if (r->o->rotate)
        TRY(export_table(r, head ? head : embed, RUN_HEAD, w));
    for (int64_t c = 0; c < C; c++)
        w[c] = 1;
    if (r->o->rotate) {
        TRY(export_table(r, embed, embed->name, NULL));
        TRY(export_floats(r->export, norm->name, w, 0, C));
    }
    arena_rewind(&r->scratch, mark);
    return OK;
}

Status run_rest(Run *r)
{
    TRY(make_ends(r));
    return copy_rest(r);
}
