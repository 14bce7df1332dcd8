/* needles_run.c - who finds the needles, and what attention does meanwhile. */
#include <string.h>

#include "analysis/needles.h"

/* --- running --- */

/* Sequences first .. first + n as a set of their own. */
static Status slice(Sequences *out, Arena *a, const Sequences *s, int64_t first, int64_t n)
{
    int64_t  from = s->start[first];
    int64_t *start;
    ARENA_NEW(start, a, n + 1);
    for (int64_t i = 0; i <= n; i++)
        start[i] = s->start[first + i] - from;
    *out = (Sequences){.n = n, .start = start, .ids = s->ids + from,
                       .targets = s->targets + from, .spans = s->spans + first,
                       .share_rows = s->share_rows + from};
    return OK;
}

/* Adds a head's shares to their means over H heads. Place `at` of a layer and depth. */
static void add_head(NeedleScore *out, const ShareRecord *r, int64_t layer, int depth,
                     double H, bool on_first)
{
    int64_t at = layer * NEEDLES_DEPTHS + depth;
    out->span[at] += r->diff_abs_span / r->diff_abs / H;
    out->rest[at] += (r->diff_abs - r->diff_abs_span) / r->diff_abs / H;
    if (!on_first)
        out->first[at] += r->diff_abs_first / r->diff_abs / H;
    for (int64_t m = 0; m < out->n_maps; m++)
        out->map_span[(layer * out->n_maps + m) * NEEDLES_DEPTHS + depth] +=
            r->span[m] / (double)r->span_rows / H;
}

/* One depth after another, because a record adds up all that passes. */
static Status run_depth(NeedleScore *out, Arena *a, const Needles *nd, Scorer *sc, int depth)
{
    const ModelConfig *c = &sc->model->config;
    int64_t   n = nd->o.samples, right = 0;
    uint8_t  *correct = out->correct + depth * n;
    Retrieval part = {.n = n};
    Probe     probe = {0};
    ARENA_NEW(probe.shares, a, c->n_layers * c->n_heads);
    TRY(slice(&part.seq, a, &nd->episodes.seq, depth * n, n));
    sc->probe = &probe;
    TRY(retrieval_run(&part, sc, correct));
    for (int64_t i = 0; i < n; i++)
        right += correct[i];
    out->depth[depth] = task_score(n, right);
    out->all.n_correct += right;
    for (int64_t i = 0; i < c->n_layers * c->n_heads; i++)
        add_head(out, &probe.shares[i], i / c->n_heads, depth, (double)c->n_heads,
                 part.seq.spans[0].first == 0);
    return OK;
}

static Status make_arrays(NeedleScore *out, Arena *a, const Needles *nd, const ModelConfig *c)
{
    int64_t n = c->n_layers * NEEDLES_DEPTHS;
    *out = (NeedleScore){.n_layers = c->n_layers, .n_maps = c->n_maps};
    ARENA_NEW(out->correct, a, nd->n);
    ARENA_NEW(out->span, a, n);
    ARENA_NEW(out->rest, a, n);
    ARENA_NEW(out->first, a, n);
    ARENA_NEW(out->map_span, a, n * c->n_maps);
    return OK;
}

Status needles_run(NeedleScore *out, Arena *a, const Needles *nd, Scorer *sc)
{
    Probe *kept = sc->probe;
    Arena  tmp = {0};
    Status s = OK;
    GUARD(make_arrays(out, a, nd, &sc->model->config));
    sc->n_nan = 0;
    for (int d = 0; d < NEEDLES_DEPTHS; d++)
        GUARD(run_depth(out, &tmp, nd, sc, d));
    out->all = task_score(nd->n, out->all.n_correct);
    out->n_nan = sc->n_nan;
out:
    sc->probe = kept;
    arena_close(&tmp);
    return s;
}

/* --- series --- */

/* "needles/n6_r2/what" in a. */
static Status name_of(const char **out, Arena *a, const Needles *nd, const char *what)
{
    *out = arena_printf(a, "needles/n%lld_r%lld/%s", (long long)nd->o.needles,
                        (long long)nd->o.asked, what);
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory for series of %s", nd->name);
}

static Status add_array(SeriesSet *set, const Needles *nd, const char *what, const char *about,
                        const char *dims, const int64_t *shape, const double *from)
{
    static const char *const DEPTH[] = {"depth"}, *const LAYER[] = {"layer", "depth"},
                             *const MAP[] = {"layer", "map", "depth"};
    int         n_dims = (int)strlen(dims);   // "d", "ld", "lmd"
    const char *name;
    Series     *out;
    TRY(name_of(&name, set->arena, nd, what));
    TRY(series_add(set, &out, SERIES_F64, name, "", about, n_dims,
                   n_dims == 1 ? DEPTH : n_dims == 2 ? LAYER : MAP, shape));
    memcpy(out->data, from, (size_t)series_count(out) * sizeof *from);
    return OK;
}

static Status add_depths(SeriesSet *set)
{
    Series *out;
    if (series_find(set, "depth"))
        return OK;
    TRY(series_add(set, &out, SERIES_I32, "depth", "%",
                   "Where the first needle asked for stands: share of the filler before it.",
                   1, (const char *const[]){"depth"}, (int64_t[]){NEEDLES_DEPTHS}));
    memcpy(out->data, NEEDLES_DEPTH, sizeof NEEDLES_DEPTH);
    return OK;
}

static Status add_correct(SeriesSet *set, const NeedleScore *s, const Needles *nd)
{
    const char *name;
    Series     *out;
    TRY(name_of(&name, set->arena, nd, "correct"));
    TRY(series_add(set, &out, SERIES_I32, name, "", "1 where an episode's numbers are all right.",
                   2, (const char *const[]){"depth", "sample"},
                   (int64_t[]){NEEDLES_DEPTHS, nd->o.samples}));
    for (int64_t i = 0; i < nd->n; i++)
        ((int32_t *)out->data)[i] = s->correct[i];
    return OK;
}

static Status add_nan(SeriesSet *set, const NeedleScore *s, const Needles *nd)
{
    const char *name;
    Series     *out;
    TRY(name_of(&name, set->arena, nd, "nan"));
    TRY(series_add(set, &out, SERIES_I64, name, "",
                   "Tokens of the numbers whose log-probability was NaN.", 0, NULL, NULL));
    *(int64_t *)out->data = s->n_nan;
    return OK;
}

/* That series of the set; ERR_FORMAT where it has not n figures. */
static Status find(const Series **out, const Needles *nd, const SeriesSet *set,
                   const char *what, const char *dims, int64_t n)
{
    Arena       tmp = {0};
    const char *name;
    Status      s = name_of(&name, &tmp, nd, what);
    *out = s == OK ? series_find_dims(set, name, dims) : NULL;
    if (s == OK && (!*out || series_count(*out) != n))
        s = STATUS(ERR_FORMAT, "%s: no %s of %lld episodes", set->model, name, (long long)nd->n);
    arena_close(&tmp);
    return s;
}

Status needles_correct(uint8_t **correct, int64_t *n_nan, Arena *a, const Needles *nd,
                       const SeriesSet *set)
{
    const Series *right, *nan;
    TRY(find(&right, nd, set, "correct", "depth,sample", nd->n));
    TRY(find(&nan, nd, set, "nan", "", 1));
    *n_nan = (int64_t)series_at(nan, 0);
    ARENA_NEW(*correct, a, nd->n);
    for (int64_t i = 0; i < nd->n; i++)
        (*correct)[i] = series_at(right, i) != 0;
    return OK;
}

static Status add_facts(SeriesSet *set, const Needles *nd)
{
    TRY(series_attr_int(set, "needles_context", nd->o.context));
    TRY(series_attr_int(set, "needles_samples", nd->o.samples));
    TRY(series_attr_int(set, "needles_seed", (int64_t)nd->o.seed));
    return series_attr_text(set, "needles_form", needles_form_name(nd->o.form));
}

Status needles_series(const NeedleScore *s, const Needles *nd, SeriesSet *set)
{
    const int64_t by_depth[] = {NEEDLES_DEPTHS}, by_layer[] = {s->n_layers, NEEDLES_DEPTHS};
    const int64_t by_map[] = {s->n_layers, s->n_maps, NEEDLES_DEPTHS};
    double accuracy[NEEDLES_DEPTHS], error[NEEDLES_DEPTHS];
    for (int d = 0; d < NEEDLES_DEPTHS; d++) {
        accuracy[d] = s->depth[d].accuracy;
        error[d] = s->depth[d].error;
    }
    TRY(add_facts(set, nd));
    TRY(add_depths(set));
    TRY(add_array(set, nd, "accuracy", "Share of episodes with every number right.", "d",
                  by_depth, accuracy));
    TRY(add_array(set, nd, "stderr", "Standard error of the accuracy.", "d", by_depth, error));
    TRY(add_correct(set, s, nd));
    TRY(add_nan(set, s, nd));
    TRY(add_array(set, nd, "span", "Attention on the needle asked for, of sum |A1 - lambda "
                  "A2| of the rows that predict its number; mean over heads.", "ld", by_layer,
                  s->span));
    TRY(add_array(set, nd, "rest", "Attention on everything else: 1 - span.", "ld", by_layer,
                  s->rest));
    TRY(add_array(set, nd, "first", "What of the rest lies on position 0.", "ld", by_layer,
                  s->first));
    return add_array(set, nd, "map_span", "Weight of each map on the needle asked for; mean "
                     "over rows and heads.", "lmd", by_map, s->map_span);
}
