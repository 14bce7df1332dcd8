/* perplexity.h - how well a model predicts a text.
 * The convention is that of the Windows: see Windows.convention. */
#ifndef DQ_PERPLEXITY_H
#define DQ_PERPLEXITY_H

#include "analysis/windows.h"

typedef struct {
    int64_t n_tokens;     // predictions scored
    int64_t n_windows;
    double  nll;          // mean of -log p, in nats
    double  nll_error;    // its standard error, from the spread between windows (tokens of
                          //   one window are not independent); NaN for a single window
    double  perplexity;   // exp(nll)
    double  accuracy;     // share of tokens that were the model's first choice
    /* Of the text itself, so that tokenizers compare: NaN where not all of it is scored
     * (Windows.n_bytes is 0). */
    int64_t n_words, n_bytes;
    double  word_perplexity, byte_perplexity;   // exp of the sum of -log p over words, bytes
    double  bits_per_byte;
    /* [n_windows] each window's sum of -log p, times n_windows / n_tokens: their mean is
     * nll, whatever the lengths. For paired tests. NULL unless asked for. */
    double *window_nll;
} Perplexity;

/* NaN or infinite log-probabilities stay in the figures: they are the result.
 * ERR_RANGE when the windows have nothing to score. */
MUST_USE Status perplexity_run(Perplexity *p, Scorer *sc, const Windows *w);
/* The same with p->window_nll, which comes from a. */
MUST_USE Status perplexity_run_windows(Perplexity *p, Arena *a, Scorer *sc, const Windows *w);

#endif
