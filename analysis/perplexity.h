/* perplexity.h - how well a model predicts a text.
 * The convention is that of the Windows: see Windows.convention. */
#ifndef DQ_PERPLEXITY_H
#define DQ_PERPLEXITY_H

#include "analysis/windows.h"

typedef struct {
    int64_t n_tokens;     // predictions scored
    int64_t n_windows;
    double  nll;          // mean of -log p, in nats
    double  perplexity;   // exp(nll)
    double  accuracy;     // share of tokens that were the model's first choice
} Perplexity;

/* NaN or infinite log-probabilities stay in the figures: they are the result.
 * ERR_RANGE when the windows have nothing to score. */
MUST_USE Status perplexity_run(Perplexity *p, Scorer *sc, const Windows *w);

#endif
