/* ref_golden.h - models under test beside what transformers computed from them.
 * A Golden is an expected.safetensors (tests/golden/make_golden.py says what is
 * in it); a Subject is a loaded model; a Run is what it makes of some tokens. */
#ifndef DQ_REF_GOLDEN_H
#define DQ_REF_GOLDEN_H

#include "analysis/probe.h"
#include "kernels/arena.h"

/* All on the host; maps and lambda are NULL where there are none. */
typedef struct {
    int64_t        T, R, L, C, V;     // tokens, kept rows, layers, hidden, vocabulary
    int64_t        N;                 // heads, or half-heads of a differential model
    int64_t        S;                 // length of the first sequence
    Batch          batch;
    const int32_t *ids;               // [T]
    const int32_t *rows;              // [R]
    const float   *hidden;            // [L,R,C]
    const float   *logits;            // [R,V]
    const float   *logit_absmax;      // [L,N]
    const float   *lambda;            // [L]
    const float   *maps;              // [L,N,S,S]
    const float   *bf16_loss;         // [2] logits, hidden
} Golden;

typedef struct {
    Arena   arena;
    Backend be;
    Model   m;
} Subject;

typedef struct {
    float *hidden;    // [L,T,C]
    float *final;     // [T,C] after the final norm
    float *logits;    // [T,V]
} Run;

/* Reads expected.safetensors at path; everything is copied into a. */
MUST_USE Status golden_read(Golden *g, Arena *a, const char *path);
/* Names of all folders, sorted: "models/diff_mha". */
MUST_USE Status golden_names(const char ***names, int64_t *n, Arena *a);
/* Where they lie, as model_load takes it, and what is expected. */
const char *golden_folder(const char *name);
const char *golden_file(const char *name);
/* The checkpoint's number of the query head that is map `map` of output head `head`. */
int64_t golden_query_head(const Model *m, int64_t head, int64_t map);

/* subject_close after either outcome. */
MUST_USE Status subject_open(Subject *s, const char *path, const ModelOptions *options,
                             int n_threads);
MUST_USE Status subject_open_on(Subject *s, const char *device, const char *path,
                                const ModelOptions *options, int n_threads);
void            subject_close(Subject *s);

/* Runs the model into buffers of s->arena. The probe may be NULL; its on_hidden
 * is used and cleared. A cache takes one sequence. */
MUST_USE Status subject_run(Run *r, Subject *s, const int32_t *ids, const Batch *batch,
                            Probe *probe, Cache *cache);
MUST_USE Status subject_run_rounded(Run *r, Subject *s, const int32_t *ids, const Batch *batch,
                                    RunQuant quant, Probe *probe, Cache *cache);

/* The model in folder, run on the tokens of the golden file expected. */
typedef struct {
    Subject subject;
    Golden  golden;
    Run     run;
    double  logits, hidden;   // worst differences, as a share of the largest value
} Trial;

/* subject_close(&t->subject) after either outcome. The probe may be NULL. */
MUST_USE Status trial_run(Trial *t, const char *folder, const char *expected, Dtype dtype,
                          Probe *probe);
/* Runs it and fails the test where it is further off than GOLDEN_F32 or, in
 * bf16, than half again what transformers' own bf16 loses. loud: prints both figures. */
void golden_compare(const char *name, const char *folder, const char *expected, Dtype dtype,
                    bool loud);

/* Bound of f32, as a share of the largest value. */
#define GOLDEN_F32 2e-5

/* Largest |got - want| over n values, as a share of the largest |want|. Infinity
 * where either holds a NaN or an infinity, or want is all zeros. */
double ref_worst_gap(const float *got, const float *want, int64_t n);
/* The same over the golden's rows of a [T,width] result; want is [R,width]. */
double golden_worst(const Golden *g, const float *got, const float *want, int64_t width);
/* The worst layer's figure. */
double golden_worst_hidden(const Golden *g, const Run *r);

#endif
