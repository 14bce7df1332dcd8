/* test_choice_run.c - log-likelihoods with common beginnings computed once, beside every
 * request for itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/choice.h"
#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

enum { ITEMS = 40, CHOICES = 4, MOST = ITEMS * CHOICES };

/* Requests by hand: item i has choices that begin with a prefix of any length, none and
 * all of a request among them. */
typedef struct {
    int32_t       ids[MOST * 64], targets[MOST * 64];
    int64_t       start[MOST + 1], first[ITEMS + 1];
    ChoiceRequest requests[MOST];
    Choice        c;
} Made;

static int draw(uint64_t *seed, int n)
{
    return (int)((1 + (double)check_uniform(seed)) / 2 * n);
}

static void make(Made *m)
{
    uint64_t seed = 11;
    int64_t  r = 0, at = 0;
    memset(m, 0, sizeof *m);
    for (int64_t i = 0; i < ITEMS; i++) {
        int n_choices = 1 + draw(&seed, CHOICES), prefix = draw(&seed, 30);
        int32_t front[30];
        for (int t = 0; t < 30; t++)
            front[t] = 3 + draw(&seed, 90);
        for (int j = 0; j < n_choices; j++, r++) {
            int own = draw(&seed, 6) * draw(&seed, 2) + (prefix == 0);
            int scored = 1 + draw(&seed, prefix + own);
            for (int t = 0; t < prefix + own; t++)
                m->ids[at + t] = t < prefix ? front[t] : 3 + draw(&seed, 90);
            for (int t = 0; t < prefix + own; t++)
                m->targets[at + t] = t < prefix + own - scored ? -1
                                     : t + 1 < prefix + own    ? m->ids[at + t + 1]
                                                               : 3 + draw(&seed, 90);
            at += prefix + own;
            m->start[r + 1] = at;
            m->requests[r] = (ChoiceRequest){.item = i, .choice = j, .length = 1};
        }
        m->first[i + 1] = r;
    }
    m->c = (Choice){.n = ITEMS, .first = m->first, .n_requests = r, .requests = m->requests,
                    .seq = {.n = r, .start = m->start, .ids = m->ids, .targets = m->targets}};
}

/* Largest relative difference of choice_run from sums of tiny_score; < 0 on error. */
static double error_of(const char *model, RunQuant quant, int64_t batch_tokens, int threads)
{
    static Made made;
    TinyModel   m;
    double      loglik[MOST], want, worst = 0;
    uint8_t     greedy[MOST];
    double     *logprob = malloc(sizeof made.ids / sizeof made.ids[0] * sizeof *logprob);
    int32_t    *best = malloc(sizeof made.ids);
    make(&made);
    const Sequences *s = &made.c.seq;
    if (tiny_open(&m, model) != OK)
        return -1;
    m.backend.n_threads = threads;
    Scorer sc = {.model = &m.model, .quant = quant, .batch_tokens = batch_tokens};
    bool   ok = tiny_score(&m.model, quant, s, logprob, best) == OK &&
              choice_run(&made.c, &sc, loglik, greedy) == OK && sc.done == s->start[s->n];
    for (int64_t i = 0; ok && i < s->n; i++) {
        bool first = true;
        want = 0;
        for (int64_t t = s->start[i]; t < s->start[i + 1]; t++)
            if (s->targets[t] >= 0) {
                want += logprob[t];
                first = first && best[t] == s->targets[t];
            }
        worst = fmax(worst, fabs(loglik[i] - want) / fabs(want));
        ok = greedy[i] == first && !isnan(loglik[i]);
    }
    tiny_close(&m);
    free(logprob);
    free(best);
    return ok ? worst : -2;
}

TEST(shared_beginnings_change_nothing)
{
    static const RunQuant NONE = {.bits = 16}, ROW = {.bits = 8, .scale = SCALE_ROW},
                          TENSOR = {.bits = 8, .scale = SCALE_TENSOR};
    static const int64_t BATCH[] = {1, 50, 0};
    for (int i = 0; i < 3; i++) {
        double e = error_of("diff_gqa", NONE, BATCH[i], 1 + i);
        T_OK(e >= 0 && e <= 2e-6);
        e = error_of("diff_gqa", ROW, BATCH[i], 1 + i);
        T_OK(e >= 0 && e <= 1e-3);
        e = error_of("diff_gqa", TENSOR, BATCH[i], 1 + i);
        T_OK(e >= 0 && e <= 1e-3);
    }
}
