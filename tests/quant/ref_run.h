/* ref_run.h - a run of quantize on a golden model with a short random text, and the logits of
 * what came of it. */
#ifndef DQ_REF_RUN_H
#define DQ_REF_RUN_H

#include "analysis/probe.h"
#include "quant/plan.h"
#include "quant/quantize.h"

enum { REF_RUN_TOKENS = 70, REF_RUN_VOCAB = 101 };

typedef struct {
    Arena           arena;
    Backend         be;
    Sequences       text;       // eight windows of 38 tokens; o.text does not name it yet
    char            model[512], out[512];
    QuantizeOptions o;          // compressed-tensors, f32, over what is there
    QuantizeResult  r;
} RefRun;

/* model: a folder of golden/models, or "baselines/NAME"; out is a folder of the test's own. */
Status ref_run_open(RefRun *f, const char *model, Scheme scheme);
void   ref_run_close(RefRun *f);
/* Another text: n windows. */
void   ref_run_text(RefRun *f, int64_t n, int64_t length);

/* o.text is the text. */
void   ref_run_calibrate(RefRun *f);

Scheme ref_scheme(int bits, int group, bool asym, Method method);   // scales of f32

/* Logits [REF_RUN_TOKENS, REF_RUN_VOCAB] of the model at path on two sequences, in f's arena.
 * Some models have learned 40 positions, no more. */
Status ref_run_logits(float **out, RefRun *f, const char *path, WeightEdit edit, void *plan);
/* Largest difference over the largest of a; NaN counts as infinite. */
double ref_run_difference(const float *a, const float *b);
/* Root of the mean square of a - b, over that of a; infinite where one is not finite. */
double ref_run_loss(const float *a, const float *b);

#endif
