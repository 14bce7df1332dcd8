/* run_rest.c - embedding, final norm, head, and whatever no layer wrote. */
#include "kernels/size.h"
#include "quant/run/run.h"

enum { ROWS_AT_ONCE = 1024 };

static bool is_turned(const Run *r, const ModelTensor *t)
{
    return r->o->rotate && (t == layers_embed(&r->layers) || t == layers_norm(&r->layers) ||
                            t == layers_head(&r->layers));
}

static Status copy_rest(Run *r)
{
    const ModelInfo *info = &r->layers.info;
    for (const ModelTensor *t = info->tensors; t < info->tensors + info->n_tensors; t++)
        if (!is_turned(r, t) && !export_has(r->export, t->name))
            TRY(export_copy(r->export, t->name));
    return OK;
}

/* Rows of t turned, as tensor `name`; norm NULL: those of the embedding. */
static Status turn_table(Run *r, const ModelTensor *t, const char *name, const float *norm)
{
    ArenaMark mark = arena_mark(&r->scratch);
    int64_t   V = t->view.shape[0], C = t->view.shape[1];
    float    *x;
    ARENA_NEW(x, &r->scratch, ROWS_AT_ONCE * C);
    for (int64_t first = 0; first < V; first += ROWS_AT_ONCE) {
        int64_t n = i64_min(ROWS_AT_ONCE, V - first);
        TRY(layers_read_rows(x, &r->layers, t, first, n));
        if (norm)
            TRY(rotate_head(x, n, norm, &r->r1, &r->scratch));
        else
            TRY(rotate_embed(x, n, &r->r1, &r->scratch));
        TRY(export_floats(r->export, name, x, first, n));
    }
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* Rotated: the final norm goes into the head, which no longer is the embedding. */
static Status turn_ends(Run *r)
{
    const ModelTensor *embed = layers_embed(&r->layers), *norm = layers_norm(&r->layers);
    const ModelTensor *head = layers_head(&r->layers);
    int64_t            C = r->layers.info.config.hidden;
    ArenaMark          mark = arena_mark(&r->scratch);
    float             *w;
    ARENA_NEW(w, &r->scratch, C);
    TRY(layers_read_tensor(w, &r->layers, norm));
    TRY(turn_table(r, head ? head : embed, "lm_head.weight", w));
    TRY(turn_table(r, embed, embed->name, NULL));
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
    return copy_rest(r);
}
