/* perplexity.c - mean negative log-likelihood over windows. */
#include "analysis/perplexity.h"

#include <math.h>

/* In double, in the order of the text: batches leave no trace. */
static void add_up(Perplexity *p, const Windows *w, const float *logprob, const int32_t *best)
{
    const Sequences *s = &w->seq;
    double  sum = 0;
    int64_t n = 0, hits = 0;
    for (int64_t t = 0; t < w->n_tokens; t++)
        if (s->targets[t] >= 0) {
            n++;
            sum -= (double)logprob[t];
            hits += best[t] == s->targets[t];
        }
    *p = (Perplexity){
        .n_tokens = n,
        .n_windows = s->n,
        .nll = sum / (double)n,
        .perplexity = exp(sum / (double)n),
        .accuracy = (double)hits / (double)n,
    };
}

static Status run(Perplexity *p, Arena *a, Scorer *sc, const Windows *w)
{
    float   *logprob;
    int32_t *best;
    ARENA_NEW(logprob, a, w->n_tokens);
    ARENA_NEW(best, a, w->n_tokens);
    TRY(score_run(sc, &w->seq, logprob, best));
    add_up(p, w, logprob, best);
    return OK;
}

Status perplexity_run(Perplexity *p, Scorer *sc, const Windows *w)
{
    Arena a = {0};
    if (w->n_scored == 0)
        FAIL(ERR_RANGE, "windows of %lld tokens leave nothing to score",
             (long long)w->context);
    Status s = run(p, &a, sc, w);
    arena_close(&a);
    return s;
}
