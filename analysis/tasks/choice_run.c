/* choice_run.c - log-likelihoods of a task's continuations. */
#include "analysis/choice.h"

static Status run(const Choice *c, Arena *a, Scorer *sc, double *loglik, uint8_t *greedy)
{
    const Sequences *s = &c->seq;
    float   *logprob;
    int32_t *best;
    ARENA_NEW(logprob, a, s->start[s->n]);
    ARENA_NEW(best, a, s->start[s->n]);
    TRY(score_run(sc, s, logprob, best));
    for (int64_t i = 0; i < s->n; i++) {
        loglik[i] = 0;
        if (greedy)
            greedy[i] = 1;
        for (int64_t t = s->start[i]; t < s->start[i + 1]; t++) {
            loglik[i] += (double)logprob[t];
            if (greedy && s->targets[t] >= 0 && best[t] != s->targets[t])
                greedy[i] = 0;
        }
    }
    return OK;
}

Status choice_run(const Choice *c, Scorer *sc, double *loglik, uint8_t *greedy)
{
    Arena  a = {0};
    Status s = run(c, &a, sc, loglik, greedy);
    arena_close(&a);
    return s;
}
