/* choice_run.c - log-likelihoods of a task's continuations. */
#include "analysis/choice.h"

#include "analysis/tasks/choice_share.h"

typedef struct {
    const Choice *c;
    Scorer       *sc;
    double       *loglik;
    uint8_t      *greedy;   // or NULL
} Run;

static void begin(Run *r)
{
    for (int64_t i = 0; i < r->c->n_requests; i++) {
        r->loglik[i] = 0;
        if (r->greedy)
            r->greedy[i] = 1;
    }
}

static void add(Run *r, int64_t request, float logprob, bool first)
{
    r->loglik[request] += (double)logprob;
    if (r->greedy && !first)
        r->greedy[request] = 0;
}

/* --- every request for itself --- */

static Status run_apart(Run *r, Arena *a)
{
    const Sequences *s = &r->c->seq;
    float           *logprob;
    int32_t         *best;
    ARENA_NEW(logprob, a, s->start[s->n]);
    ARENA_NEW(best, a, s->start[s->n]);
    TRY(score_run(r->sc, s, logprob, best));
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t t = s->start[i]; t < s->start[i + 1]; t++)
            if (s->targets[t] >= 0)
                add(r, i, logprob[t], best[t] == s->targets[t]);
    return OK;
}

/* --- common beginnings once --- */

static Status score(Run *r, Arena *a, const Share *sh)
{
    Model   *m = r->sc->model;
    Tensor   x;
    float   *logprob;
    int32_t *best;
    ARENA_NEW(logprob, a, sh->n);
    ARENA_NEW(best, a, sh->n);
    TRY(backend_tensor(m->backend, &x, 2, (int64_t[]){sh->T, m->config.hidden}));
    TRY(model_forward_branches(m, &x, sh->ids, &sh->branches, r->sc->quant));
    TRY(score_rows(r->sc, &x, sh->n, sh->rows, sh->targets, logprob, best));
    int64_t i = 0;
    for (int64_t q = sh->first; q < sh->end; q++)
        for (int64_t t = r->c->seq.start[q]; t < r->c->seq.start[q + 1]; t++)
            if (r->c->seq.targets[t] >= 0) {
                add(r, q, logprob[i], best[i] == sh->targets[i]);
                i++;
            }
    return OK;
}

static Status run_share(Run *r, Arena *a, const Share *sh)
{
    ArenaMark mark = backend_mark(r->sc->model->backend);
    Status    s = score(r, a, sh);
    backend_rewind(r->sc->model->backend, mark);
    return s;
}

static Status run_shared(Run *r, Arena *a)
{
    Scorer          *sc = r->sc;
    const Sequences *s = &r->c->seq;
    int64_t budget = score_tokens(sc, true);
    for (int64_t first = 0; first < r->c->n_requests;) {
        Share     sh;
        ArenaMark mark = arena_mark(a);
        TRY(share_make(&sh, a, r->c, first, budget));
        TRY(run_share(r, a, &sh));
        sc->done += s->start[sh.end] - s->start[first];   // as if none were shared
        progress_step(sc->progress, sc->done, sc->total, sc->what);
        first = sh.end;
        arena_rewind(a, mark);
    }
    return OK;
}

/* A probe sees all rows of every request, and so does rounding by what comes later. */
Status choice_run(const Choice *c, Scorer *sc, double *loglik, uint8_t *greedy)
{
    Arena  a = {0};
    Run    r = {c, sc, loglik, greedy};
    bool   shared = !sc->probe && model_can_branch(sc->model, sc->quant);
    begin(&r);
    Status s = shared ? run_shared(&r, &a) : run_apart(&r, &a);
    arena_close(&a);
    return s;
}
