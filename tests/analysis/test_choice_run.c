/* test_choice_run.c - log-likelihoods with common beginnings computed once, beside every
 * request for itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/choice.h"
#include "analysis/tasks/choice_share.h"
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

/* Sums of score_run, every request for itself, equal choice_run's to the bit. */
static bool same_as_apart(const char *model, RunQuant quant)
{
    static Made made;
    TinyModel   m;
    double      loglik[MOST];
    float      *logprob = malloc(sizeof made.ids / sizeof made.ids[0] * sizeof *logprob);
    int32_t    *best = malloc(sizeof made.ids);
    make(&made);
    if (tiny_open(&m, model) != OK)
        return false;
    Scorer sc = {.model = &m.model, .quant = quant};
    bool   ok = score_run(&sc, &made.c.seq, logprob, best) == OK &&
              choice_run(&made.c, &sc, loglik, NULL) == OK;
    for (int64_t i = 0; ok && i < made.c.n_requests; i++) {
        double sum = 0;
        for (int64_t t = made.start[i]; t < made.start[i + 1]; t++)
            sum += made.targets[t] >= 0 ? (double)logprob[t] : 0;
        ok = sum == loglik[i];
    }
    tiny_close(&m);
    free(logprob);
    free(best);
    return ok;
}

static const RunQuant NONE = {.bits = 16}, ROW = {.bits = 6, .scale = SCALE_ROW},
                      HEAD = {.bits = 6, .scale = SCALE_HEAD},
                      TENSOR = {.bits = 6, .scale = SCALE_TENSOR};

/* Without rounding a sum of few log-probabilities in f32; rounding may fall to the other
 * side where a batch's sums differ in the last bit, which none of these does. */
TEST(figures_are_those_of_single_sequences)
{
    static const int64_t  BATCH[] = {1, 50, 0};
    static const RunQuant QUANT[] = {{.bits = 16}, {.bits = 6, .scale = SCALE_ROW},
                                      {.bits = 6, .scale = SCALE_HEAD},
                                      {.bits = 6, .scale = SCALE_TENSOR}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) {
            double e = error_of("diff_gqa", QUANT[k], BATCH[i], 1 + i);
            T_OK(e >= 0 && e <= 1e-6);
        }
    double e = error_of("llama_mqa_relu", NONE, 0, 2);
    T_OK(e >= 0 && e <= 1e-6);
}

TEST(sharing_changes_no_bit)
{
    T_OK(same_as_apart("diff_gqa", NONE));
    T_OK(same_as_apart("diff_gqa", ROW));
    T_OK(same_as_apart("llama_gqa", NONE));
    T_OK(same_as_apart("rope_yarn", NONE));
}

/* Nothing of a row may hang on what comes after it. */
TEST(what_may_be_shared)
{
    TinyModel m;
    T_STATUS_OK(tiny_open(&m, "llama_gqa"));
    T_OK(model_can_branch(&m.model, NONE) && model_can_branch(&m.model, ROW));
    T_OK(!model_can_branch(&m.model, HEAD) && !model_can_branch(&m.model, TENSOR));
    T_OK(model_can_branch(&m.model, (RunQuant){.bits = 16, .acts = 8}));
    T_OK(!model_can_branch(&m.model, (RunQuant){.bits = 16, .acts = 8,
                                                .act_scale = ACTS_TENSOR}));
    T_OK(!model_can_branch(&m.model, (RunQuant){.bits = 16, .kv = 8}));
    m.model.config.rope.kind = ROPE_DYNAMIC;
    T_OK(!model_can_branch(&m.model, NONE));
    tiny_close(&m);
}

TEST(common_rows_come_once)
{
    /* Prefix 5 6; then nothing, one row, two rows. */
    static const int32_t IDS[] = {5, 6, 5, 6, 7, 5, 6, 3, 4},
                         TARGETS[] = {-1, 8, -1, -1, 9, -1, 2, 4, 5};
    static const int64_t START[] = {0, 2, 5, 9}, FIRST[] = {0, 3};
    static const ChoiceRequest R[3] = {{.choice = 0}, {.choice = 1}, {.choice = 2}};
    static const int32_t WANT_IDS[] = {5, 6, 7, 3, 4}, ROWS[] = {1, 2, 1, 3, 4},
                         WANT[] = {8, 9, 2, 4, 5}, KEYS[] = {0, 1, 0, 1, 2, 0, 1, 3, 4};
    Choice c = {.n = 1, .first = FIRST, .n_requests = 3, .requests = R,
                .seq = {.n = 3, .start = START, .ids = IDS, .targets = TARGETS}};
    Arena a = {0};
    Share s;
    T_STATUS_OK(share_make(&s, &a, &c, 0, 100));
    T_OK(s.first == 0 && s.end == 3 && s.T == 5 && s.n == 5);
    T_OK(memcmp(s.ids, WANT_IDS, sizeof WANT_IDS) == 0);
    T_OK(memcmp(s.rows, ROWS, sizeof ROWS) == 0 && memcmp(s.targets, WANT, sizeof WANT) == 0);
    T_OK(s.branches.batch.n_sequences == 3 && s.branches.batch.start[3] == 5);
    T_OK(s.branches.key_start[3] == 9 && memcmp(s.branches.key_rows, KEYS, sizeof KEYS) == 0);
    arena_close(&a);
}

TEST(every_allocation_may_fail)
{
    static Made made;
    TinyModel   m;
    double      loglik[MOST];
    int64_t     k = 0;
    make(&made);
    made.c.n_requests = made.first[3];
    made.c.seq.n = made.c.n_requests;
    T_STATUS_OK(tiny_open(&m, "llama_gqa"));
    for (Status s = ERR_MEMORY; s != OK; k++) {
        Scorer sc = {.model = &m.model, .quant = NONE};
        arena_fail_at(k + 1);
        s = choice_run(&made.c, &sc, loglik, NULL);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && status_text()[0]));
    }
    T_OK(k > 20);
    tiny_close(&m);
}
