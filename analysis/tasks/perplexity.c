/* perplexity.c - mean negative log-likelihood over windows. */
#include "analysis/perplexity.h"

#include <math.h>

/* What the windows sum up to. */
typedef struct {
    double  *nll;   // [n] sums of -log p
    int64_t *count; // [n] of predictions
    int64_t  hits;
} WindowSums;

/* In double, in the order of the text: batches leave no trace. */
static void add_up(WindowSums *sums, const Sequences *s, const float *logprob,
                   const int32_t *best)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t t = s->start[i]; t < s->start[i + 1]; t++)
            if (s->targets[t] >= 0) {
                sums->nll[i] -= (double)logprob[t];
                sums->count[i]++;
                sums->hits += best[t] == s->targets[t];
            }
}

/* Of a ratio of sums: windows weigh by their tokens. With equal windows it is the
 * standard deviation of their means over sqrt(n). */
static double ratio_error(const WindowSums *sums, int64_t n, double mean, int64_t n_tokens)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        double off = sums->nll[i] - mean * (double)sums->count[i];
        squares += off * off;
    }
    if (n < 2)
        return NAN;
    return sqrt(squares * (double)n / (double)(n - 1)) / (double)n_tokens;
}

static void summarize(Perplexity *p, const WindowSums *sums, const Windows *w)
{
    double sum = 0, n = (double)w->n_scored;
    for (int64_t i = 0; i < w->seq.n; i++)
        sum += sums->nll[i];
    *p = (Perplexity){
        .n_tokens = w->n_scored,
        .n_windows = w->seq.n,
        .nll = sum / n,
        .nll_error = ratio_error(sums, w->seq.n, sum / n, w->n_scored),
        .perplexity = exp(sum / n),
        .accuracy = (double)sums->hits / n,
        .n_words = w->n_words,
        .n_bytes = w->n_bytes,
        .word_perplexity = w->n_words ? exp(sum / (double)w->n_words) : NAN,
        .byte_perplexity = w->n_bytes ? exp(sum / (double)w->n_bytes) : NAN,
        .bits_per_byte = w->n_bytes ? sum / (double)w->n_bytes / M_LN2 : NAN,
    };
}

static Status keep_windows(Perplexity *p, Arena *a, const WindowSums *sums)
{
    ARENA_NEW(p->window_nll, a, p->n_windows);
    for (int64_t i = 0; i < p->n_windows; i++)
        p->window_nll[i] = sums->nll[i] * ((double)p->n_windows / (double)p->n_tokens);
    return OK;
}

static Status run(Perplexity *p, Arena *a, Arena *keep, Scorer *sc, const Windows *w)
{
    WindowSums sums = {0};
    float     *logprob;
    int32_t   *best;
    ARENA_NEW(logprob, a, w->n_tokens);
    ARENA_NEW(best, a, w->n_tokens);
    ARENA_NEW(sums.nll, a, w->seq.n);
    ARENA_NEW(sums.count, a, w->seq.n);
    TRY(score_run(sc, &w->seq, logprob, best));
    add_up(&sums, &w->seq, logprob, best);
    summarize(p, &sums, w);
    return keep ? keep_windows(p, keep, &sums) : OK;
}

Status perplexity_run_windows(Perplexity *p, Arena *a, Scorer *sc, const Windows *w)
{
    Arena tmp = {0};
    if (w->n_scored == 0)
        FAIL(ERR_RANGE, "windows of %lld tokens leave nothing to score",
             (long long)w->context);
    Status s = run(p, &tmp, a, sc, w);
    arena_close(&tmp);
    return s;
}

Status perplexity_run(Perplexity *p, Scorer *sc, const Windows *w)
{
    return perplexity_run_windows(p, NULL, sc, w);
}
