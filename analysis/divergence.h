/* divergence.h - how far a quantized model's predictions are from those of the model it
 * was made from, token by token, streamed: no logits of a whole text anywhere. The
 * definitions are llama.cpp's (llama-perplexity --kl-divergence). */
#ifndef DQ_DIVERGENCE_H
#define DQ_DIVERGENCE_H

#include "analysis/perplexity.h"

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

/* What the others are measured from: a model over some windows. Several runs are measured
 * from it; hidden states that the first has made it read are kept for the next ones. */
typedef struct {
    Scorer         sc;       // its model, what a pass over it rounds, batch_tokens
    const Windows *w;
    Tensor         kept;     // [rows,C] of rows with a target, from the text's first on
    int64_t        n_kept;
} Reference;

/* Keeps as many rows as `bytes` hold, in the memory of the model's backend: what was taken
 * from that goes with it, so r is of no use once it is rewound. Keeps sc's pointers, and w. */
MUST_USE Status reference_open(Reference *r, const Scorer *sc, const Windows *w, size_t bytes);
/* Perplexity of r->w by the model itself, sc its Scorer; its hidden states are kept. */
MUST_USE Status reference_run(Reference *r, Perplexity *p, Arena *a, Scorer *sc);

/* perplexity_run_windows of r->w, and in the same pass the distance from the reference, which
 * reads what it does not have, batch by batch (sc->batch_tokens, for both). Vocabularies must
 * be equal (ERR_SHAPE); the models may share a backend or have two of one kind, else
 * ERR_UNSUPPORTED. Either Scorer's quant and probe count; progress is told by sc, whose
 * done grows by the tokens of a batch when both models have read it. ERR_RANGE when the
 * windows have nothing to score. Keeps 8 bytes a position while it runs. The figures
 * depend neither on batch_tokens nor on threads, nor on what was kept. */
MUST_USE Status divergence_run(Divergence *d, Perplexity *p, Arena *a, Scorer *sc,
                               Reference *r);

#endif
