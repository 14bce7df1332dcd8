/* divergence.c - two models over the same windows, and what their predictions differ by. */
#include "analysis/divergence.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/size.h"

const double DIVERGENCE_AT[DIVERGENCE_QUANTILES] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

/* Of all positions so far, in the order of the text. */
typedef struct {
    int64_t n;
    float  *kl, *dp;       // [n_scored]
    int64_t same;          // first choices
    double  nll[2];        // sums of -log p: model, reference
} Gathered;

/* Rows of one batch that have a target. */
typedef struct {
    const int32_t *ids;      // [T] that the models read
    int64_t        T;
    const Span    *spans;    // of its sequences, or NULL
    Batch          batch;
    int64_t        n_rows;
    int32_t       *rows;     // [n_rows] among its T
    int32_t       *targets;  // [n_rows]
} Part;

/* --- a batch --- */

static Status part_init(Part *p, Arena *a, const Sequences *s, int64_t first, int64_t end)
{
    int64_t row0 = s->start[first];
    *p = (Part){.ids = s->ids + row0, .T = s->start[end] - row0,
                .spans = s->spans ? s->spans + first : NULL};
    TRY(sequences_batch(&p->batch, a, s, first, end));
    ARENA_NEW(p->rows, a, p->T);
    ARENA_NEW(p->targets, a, p->T);
    for (int64_t t = 0; t < p->T; t++)
        if (s->targets[row0 + t] >= 0) {
            p->rows[p->n_rows] = (int32_t)t;
            p->targets[p->n_rows++] = s->targets[row0 + t];
        }
    return OK;
}

/* Hidden states of the rows with a target, picked [n_rows,C]. */
static Status read_part(Scorer *sc, Tensor *picked, const Part *p)
{
    Model  *m = sc->model;
    int64_t C = m->config.hidden;
    Tensor  x;
    TRY(backend_tensor(m->backend, picked, 2, (int64_t[]){p->n_rows, C}));
    ArenaMark mark = backend_mark(m->backend);
    TRY(backend_tensor(m->backend, &x, 2, (int64_t[]){p->T, C}));
    if (sc->probe)
        sc->probe->spans = p->spans;
    TRY(model_forward(m, &x, p->ids, &p->batch, sc->quant, sc->probe, NULL));
    TRY(op_embed(m->backend, picked, &x, p->rows));
    backend_rewind(m->backend, mark);
    return OK;
}

static Status pair_init(HeadPair *pair, Arena *a, const Part *p)
{
    *pair = (HeadPair){.targets = p->targets};
    ARENA_NEW(pair->kl, a, p->n_rows);
    for (int i = 0; i < 2; i++) {
        ARENA_NEW(pair->logprob[i], a, p->n_rows);
        ARENA_NEW(pair->best[i], a, p->n_rows);
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

static Status compare_part(Gathered *g, Arena *a, Scorer *const sc[2], const Part *p)
{
    HeadPair pair;
    Tensor   x[2];
    TRY(pair_init(&pair, a, p));
    for (int i = 0; i < 2; i++) {
        TRY(read_part(sc[i], &x[i], p));
        pair.x[i] = &x[i];
        pair.head[i] = &sc[i]->model->head;
    }
    if (p->n_rows)
        TRY(op_divergence(sc[0]->model->backend, &pair));
    gather(g, &pair, p->n_rows);
    return OK;
}

/* The same, with what it took from both backends given back. */
static Status run_part(Gathered *g, Arena *a, Scorer *const sc[2], const Part *p)
{
    Backend  *be[2] = {sc[0]->model->backend, sc[1]->model->backend};
    ArenaMark mark[2] = {backend_mark(be[0]), backend_mark(be[1])};
    Status    s = compare_part(g, a, sc, p);
    for (int i = 0; i < 2; i++)
        backend_rewind(be[i], mark[i]);
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

static Status check(Scorer *const sc[2], const Windows *w)
{
    const Model *m = sc[0]->model, *r = sc[1]->model;
    if (w->n_scored == 0)
        FAIL(ERR_RANGE, "windows of %lld tokens leave nothing to score",
             (long long)w->context);
    if (m->config.vocab != r->config.vocab)
        FAIL(ERR_SHAPE, "%s has a vocabulary of %lld tokens, %s one of %lld: their "
             "predictions cannot be compared", m->name, (long long)m->config.vocab, r->name,
             (long long)r->config.vocab);
    if (m->backend->ops != r->backend->ops)
        FAIL(ERR_UNSUPPORTED, "%s is on %s and %s on %s: both must be on one device", m->name,
             m->backend->ops->name, r->name, r->backend->ops->name);
    return OK;
}

static Status run(Divergence *d, Arena *a, Scorer *const sc[2], const Windows *w)
{
    const Sequences *s = &w->seq;
    Gathered         g = {0};
    int64_t budget = sc[0]->batch_tokens ? sc[0]->batch_tokens : SCORE_BATCH_TOKENS;
    ARENA_NEW(g.kl, a, w->n_scored);
    ARENA_NEW(g.dp, a, w->n_scored);
    for (int64_t first = 0, end; first < s->n; first = end) {
        Part      p;
        ArenaMark mark = arena_mark(a);
        end = sequences_end(s, first, budget);
        TRY(part_init(&p, a, s, first, end));
        TRY(run_part(&g, a, sc, &p));
        arena_rewind(a, mark);
        sc[0]->done += p.T;
        progress_step(sc[0]->progress, sc[0]->done, sc[0]->total, sc[0]->what);
    }
    summarize(d, &g);
    return OK;
}

Status divergence_run(Divergence *d, Scorer *sc, Scorer *reference, const Windows *w)
{
    Scorer *const pair[2] = {sc, reference};
    Arena         a = {0};
    TRY(check(pair, w));
    Status s = run(d, &a, pair, w);
    arena_close(&a);
    return s;
}
