/* ref_models.h - one golden model on the CPU and on the GPU, and how far apart they are. */
#ifndef DQ_REF_MODELS_H
#define DQ_REF_MODELS_H

#include "tests/analysis/ref_golden.h"

enum { ON_CPU, ON_GPU, N_SIDES };

typedef struct {
    Subject of[N_SIDES];
    Golden  golden;
    Run     run[N_SIDES];
} Sides;

/* A checkpoint by its name below golden/, without its golden file or with it. sides_close
 * after either outcome. */
MUST_USE Status sides_open(Sides *p, const char *name, Dtype dtype);
MUST_USE Status sides_open_golden(Sides *p, const char *name, Dtype dtype);
/* "diff" or "base" of the pair that ships, with its golden file. */
MUST_USE Status sides_open_pair(Sides *p, const char *name, Dtype dtype);
void            sides_close(Sides *p);
/* The golden tokens on both; probes [N_SIDES] or NULL. */
MUST_USE Status sides_run(Sides *p, RunQuant quant, Probe *probes);

/* Differences of the two runs as a share of the largest value: of any layer's hidden states,
 * of what the head sees, of the logits. */
typedef struct {
    double hidden, final, logits;
} Gaps;
Gaps   sides_gaps(const Sides *p);
double gaps_worst(Gaps g);
/* Root of the mean square of the difference of logits, as a share of that of the logits: for
 * runs that round, where a difference in the last bit may move a code. */
double sides_rms(const Sides *p);

/* Do the records of one tap tell the same? What is counted is equal; other figures are within
 * tol of their largest; a few values may fall into the neighbouring bin. */
bool same_values(const ValueRecord *a, const ValueRecord *b, double tol);
bool same_logits(const LogitRecord *a, const LogitRecord *b, double tol);
bool same_shares(const ShareRecord *a, const ShareRecord *b, double tol);

#endif
