/* method.h - one matrix to codes: what all methods share.
 * A method fills codes, scales and zeros of a RtnCodes (rtn.h) and leaves in w what
 * they decode to. Scales are as stored: rounded to scheme.scale first, codes fitted
 * to what is stored. */
#ifndef DQ_METHOD_H
#define DQ_METHOD_H

#include "analysis/calibrate.h"
#include "quant/methods/rtn.h"

/* What GPTQ makes of the inputs alone, which matrices that read the same ones share. */
typedef struct {
    int64_t  k;
    double  *u;          // [K, factor_stride(K)] factor.h's, in the order
    int32_t *order;      // [K] columns, largest diagonal of the gram first
    float   *importance; // [K] diagonal over its mean, in the columns' own order
    double   mean;       // of the diagonal, of inputs that are not dead; 0: all are
    double   damp_used;
    int64_t  n_dead;
} GptqFactor;

typedef struct {
    const char       *name;    // for errors
    int64_t           n, k;
    float            *w;       // [N,K] in: the weights; out: what the codes decode to
    Scheme            scheme;
    const InputStats *inputs;  // NULL: no data. METHOD_GPTQ needs its gram
    double            damp;    // METHOD_GPTQ: share of the gram's mean diagonal, 0.01
    Backend          *backend; // for products
    const GptqFactor *factor;  // METHOD_GPTQ: of these inputs and damp, or NULL
    RoundError        error;   // out, but METHOD_GPTQ: what the codes did to w
    /* out, METHOD_GPTQ: */
    double            damp_used;  // what the factorization needed
    int64_t           n_dead;     // inputs that were always 0
} Matrix;

/* Runs scheme.method. out's arrays are the caller's (rtn.h); scratch is given back.
 * Errors as rtn_encode. */
MUST_USE Status method_encode(const RtnCodes *out, Matrix *m, Arena *scratch);

/* The same of a few rows in the calling thread alone, RTN or CLIP without inputs: for work
 * whose threads take rows by themselves. False where method_encode has an error to tell. */
bool method_encode_rows(const RtnCodes *out, Matrix *m);

/* The methods themselves; same contract. */
MUST_USE Status clip_encode(const RtnCodes *out, Matrix *m, Arena *scratch);   // clip.c
void clip_encode_rows(const RtnCodes *out, Matrix *m);  // no inputs; all groups can be fitted
MUST_USE Status gptq_encode(const RtnCodes *out, Matrix *m, Arena *scratch);   // gptq.c

/* Of a gram; name is for errors. All is taken from a. */
MUST_USE Status gptq_factor(GptqFactor *f, Arena *a, const char *name, const InputStats *in,
                            double damp, int n_threads);

/* w = what the codes decode to: the end of a method. */
void method_decode(Matrix *m, const RtnCodes *codes);

/* Scale and zero of one group of n weights, by the search that scheme.method says
 * (RTN: rtn.h's; CLIP and GPTQ: least error). weight [n]: importance of each column
 * (>= 0), or NULL: all 1. Stored precision. What gptq.c uses for its static groups. */
typedef struct {
    float scale;
    int   zero;    // 0 when symmetric
} GroupScale;
GroupScale clip_group(const float *w, const float *weight, int64_t n, const Scheme *s);

#endif
