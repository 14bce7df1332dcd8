/* divergence.c - two models over the same windows, and what their predictions differ by. */
#include "analysis/divergence.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/size.h"

const double DIVERGENCE_AT[DIVERGENCE_QUANTILES] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

/* Of all positions so far, in the order of the text. */
typedef struct {
    Scorer    *sc;
    Reference *r;
    Arena     *arena;
    int64_t    n;
    float     *kl, *dp;    // [n_scored]
    int64_t    same;       // first choices
    double     nll[2];     // sums of -log p: model, reference
} Gathered;

/* --- the reference --- */

static Tensor rows_of(const Tensor *t, int64_t first, int64_t n)
{
    return tensor_2d(DTYPE_F32, (float *)t->data + first * t->shape[1], n, t->shape[1]);
}

Status reference_open(Reference *r, const Scorer *sc, const Windows *w, size_t bytes)
{
    const Model *m = sc->model;
    int64_t      C = m->config.hidden, room = (int64_t)(bytes / sizeof(float)) / C;
    *r = (Reference){.sc = *sc, .w = w};
    r->sc.progress = NULL;
    return backend_tensor(m->backend, &r->kept, 2, (int64_t[]){i64_min(room, w->n_scored), C});
}

/* Once a batch has no room, none after it has: what is kept has no holes. */
static bool fits(const Reference *r, const ScoreBatch *b)
{
    return b->before + b->n <= r->kept.shape[0];
}

/* Hidden states of a batch. */
static Status reference_read(Reference *r, Tensor *x, const ScoreBatch *b)
{
    const Model *m = r->sc.model;
    int64_t      end = b->before + b->n;
    if (fits(r, b))
        *x = rows_of(&r->kept, b->before, b->n);
    else
        TRY(backend_tensor(m->backend, x, 2, (int64_t[]){b->n, m->config.hidden}));
    if (end <= r->n_kept)
        return OK;
    TRY(score_read(&r->sc, x, b));
    if (fits(r, b))
        r->n_kept = end;
    return OK;
}

/* Called for each batch: a copy, as a look-up of every row. */
static Status keep(void *context, const ScoreBatch *b, const Tensor *hidden)
{
    Reference *r = context;
    Arena      a = {0};
    if (!fits(r, b))
        return OK;
    Tensor   to = rows_of(&r->kept, b->before, b->n);
    int32_t *rows = arena_alloc(&a, b->n, sizeof *rows);
    if (!rows)
        FAIL(ERR_MEMORY, "out of memory for %lld rows", (long long)b->n);
    for (int64_t i = 0; i < b->n; i++)
        rows[i] = (int32_t)i;
    Status s = op_embed(r->sc.model->backend, &to, hidden, rows);
    if (s == OK)
        r->n_kept = b->before + b->n;
    arena_close(&a);
    return s;
}

Status reference_run(Reference *r, Perplexity *p, Arena *a, Scorer *sc)
{
    Scorer seen = *sc;
    seen.see = keep;
    seen.see_context = r;
    r->n_kept = 0;
    Status s = perplexity_run_windows(p, a, &seen, r->w);
    sc->done = seen.done;
    return s;
}

/* --- a batch --- */

static Status pair_init(HeadPair *pair, Arena *a, const ScoreBatch *b)
{
    *pair = (HeadPair){.targets = b->targets};
    ARENA_NEW(pair->kl, a, b->n);
    for (int i = 0; i < 2; i++) {
        ARENA_NEW(pair->logprob[i], a, b->n);
        ARENA_NEW(pair->best[i], a, b->n);
    }
    return OK;
}

static void gather(Gathered *g, const HeadPair *pair, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        g->kl[g->n] = (float)pair->kl[i];
        g->dp[g->n++] = (float)(exp(pair->logprob[0][i]) - exp(pair->logprob[1][i]));
        g->same += pair->best[0][i] == pair->best[1][i];
        g->nll[0] -= pair->logprob[0][i];
        g->nll[1] -= pair->logprob[1][i];
    }
}

static Status compare_batch(Gathered *g, const ScoreBatch *b, const Tensor *hidden)
{
    HeadPair pair;
    Tensor   theirs;
    TRY(pair_init(&pair, g->arena, b));
    TRY(reference_read(g->r, &theirs, b));
    TRY(model_head(g->r->sc.model));
    Scorer *const sc[2] = {g->sc, &g->r->sc};
    pair.x[0] = hidden;
    pair.x[1] = &theirs;
    for (int i = 0; i < 2; i++)
        pair.head[i] = &sc[i]->model->head;
    TRY(op_divergence(g->sc->model->backend, &pair));
    gather(g, &pair, b->n);
    return OK;
}

/* Called for each batch: what the reference's pass takes is given back. */
static Status see_batch(void *context, const ScoreBatch *b, const Tensor *hidden)
{
    Gathered *g = context;
    Backend  *be = g->r->sc.model->backend;
    ArenaMark mark = arena_mark(g->arena), theirs = backend_mark(be);
    Status    s = compare_batch(g, b, hidden);
    backend_rewind(be, theirs);
    arena_rewind(g->arena, mark);
    return s;
}

/* --- the figures --- */

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts values. NaN has no place in an order. */
static void quantiles(double *out, float *values, int64_t n)
{
    bool nan = false;
    for (int64_t i = 0; i < n; i++)
        nan = nan || isnan(values[i]);
    qsort(values, nan ? 0 : (size_t)n, sizeof *values, ascending);
    for (int q = 0; q < DIVERGENCE_QUANTILES; q++) {
        double  at = DIVERGENCE_AT[q] * (double)(n - 1), part = at - floor(at);
        int64_t i = (int64_t)at;
        double  low = (double)values[i], high = (double)values[i64_min(i + 1, n - 1)];
        /* Two of +inf, or one that is not asked for, would give NaN. */
        out[q] = nan ? NAN : part == 0 || low == high ? low : (1 - part) * low + part * high;
    }
}

static void summarize_kl(Divergence *d, float *kl, int64_t n)
{
    double sum = 0, squares = 0, max = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)kl[i];
        max = max >= (double)kl[i] || isnan(max) ? max : (double)kl[i];
    }
    d->kl = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += ((double)kl[i] - d->kl) * ((double)kl[i] - d->kl);
    d->kl_error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : NAN;
    d->kl_max = max;
    quantiles(d->kl_quantiles, kl, n);
}

static void summarize(Divergence *d, Gathered *g)
{
    double n = (double)g->n, squares = 0;
    *d = (Divergence){.n = g->n, .top1 = (double)g->same / n, .nll = g->nll[0] / n,
                      .nll_reference = g->nll[1] / n};
    d->top1_error = g->n > 1 ? sqrt(d->top1 * (1 - d->top1) / (n - 1)) : NAN;
    for (int64_t i = 0; i < g->n; i++)
        squares += (double)g->dp[i] * (double)g->dp[i];
    d->dp_rms = sqrt(squares / n);
    summarize_kl(d, g->kl, g->n);
    quantiles(d->dp_quantiles, g->dp, g->n);
}

/* --- the run --- */

static Status check(const Scorer *sc, const Reference *of)
{
    const Model *m = sc->model, *r = of->sc.model;
    if (m->config.vocab != r->config.vocab)
        FAIL(ERR_SHAPE, "%s has a vocabulary of %lld tokens, %s one of %lld: their "
             "predictions cannot be compared", m->name, (long long)m->config.vocab, r->name,
             (long long)r->config.vocab);
    if (m->backend->ops != r->backend->ops)
        FAIL(ERR_UNSUPPORTED, "%s is on %s and %s on %s: both must be on one device", m->name,
             m->backend->ops->name, r->name, r->backend->ops->name);
    return OK;
}

static Status run(Divergence *d, Perplexity *p, Arena *keep_in, Gathered *g)
{
    Scorer sc = *g->sc;
    sc.see = see_batch;
    sc.see_context = g;
    ARENA_NEW(g->kl, g->arena, g->r->w->n_scored);
    ARENA_NEW(g->dp, g->arena, g->r->w->n_scored);
    TRY(perplexity_run_windows(p, keep_in, &sc, g->r->w));
    g->sc->done = sc.done;
    summarize(d, g);
    return OK;
}

Status divergence_run(Divergence *d, Perplexity *p, Arena *a, Scorer *sc, Reference *r)
{
    Arena    tmp = {0};
    Gathered g = {.sc = sc, .r = r, .arena = &tmp};
    TRY(check(sc, r));
    Status s = run(d, p, a, &g);
    arena_close(&tmp);
    return s;
}
