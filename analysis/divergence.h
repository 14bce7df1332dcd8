/* divergence.h - how far a quantized model's predictions are from those of the model it
 * was made from, token by token, streamed: no logits of a whole text anywhere. The
 * definitions are llama.cpp's (llama-perplexity --kl-divergence). */
#ifndef DQ_DIVERGENCE_H
#define DQ_DIVERGENCE_H

#include "analysis/windows.h"

enum { DIVERGENCE_QUANTILES = 7 };   // 0.01 0.05 0.25 0.5 0.75 0.95 0.99
extern const double DIVERGENCE_AT[DIVERGENCE_QUANTILES];

/* NaN of one position makes every figure it enters NaN, the quantiles too. Errors are
 * standard errors over positions; NaN for a single one. Quantiles are of all positions,
 * between two of them by straight line (numpy's default). */
typedef struct {
    int64_t n;                   // positions compared
    double  kl, kl_error;        // mean KL(p_reference || p) in nats, its standard error
    double  kl_max;
    double  kl_quantiles[DIVERGENCE_QUANTILES];   // exact
    double  top1, top1_error;    // share of positions with the same first choice
    double  dp_rms;              // root mean square of p - p_reference of the true token
    double  dp_quantiles[DIVERGENCE_QUANTILES];   // of p - p_reference
    double  nll, nll_reference;  // mean of -log p
} Divergence;

/* Runs both models over the windows, batch by batch (sc->batch_tokens). Vocabularies must
 * be equal (ERR_SHAPE); the models may share a backend or have two of one kind, else
 * ERR_UNSUPPORTED. Either Scorer's quant and probe count; progress is told by sc, whose
 * done grows by the tokens of a batch when both models have read it. ERR_RANGE when the
 * windows have nothing to score. Keeps 8 bytes a position while it runs. The figures
 * depend neither on batch_tokens nor on threads. */
MUST_USE Status divergence_run(Divergence *d, Scorer *sc, Scorer *reference, const Windows *w);

#endif
