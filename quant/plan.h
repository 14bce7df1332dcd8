/* plan.h - which number format each weight matrix gets: a table name -> scheme,
 * and what that did to the weights.
 *
 * A Plan starts from a specification that holds for every matrix:
 *   fp                       as they are
 *   w<bits>[:option...]      bits 4, 6 or 8
 * with options
 *   channel | g32 | g64 | g128   one scale an output row (default), or for so
 *                                many weights of a row
 *   sym | asym                   codes around zero (default), or min to max
 *   f16 | bf16 | f32             how scales are stored (default f16)
 *   rtn | clip | gptq            how codes are chosen: round to nearest with the range
 *                                of the weights (default), the range of least error,
 *                                GPTQ (which needs calibration text)
 * Example: "w4:g128:asym:clip". */
#ifndef DQ_PLAN_H
#define DQ_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"
#include "kernels/tensor.h"

typedef enum { METHOD_RTN, METHOD_CLIP, METHOD_GPTQ, N_METHODS } Method;

typedef struct {
    int    bits;     // 4, 6, 8; 0: as they are
    int    group;    // weights of a row that share a scale; 0: the whole row
    bool   asym;
    Dtype  scale;    // F16, BF16 or F32: storage of scales
    Method method;
} Scheme;

const char *method_name(Method m);  // "gptq"

/* What rounding did: sums over all weights of a matrix. */
typedef struct {
    double error2;   // sum (w - w')^2
    double sum2;     // sum w^2
} RoundError;

typedef struct {
    const char *name;    // the checkpoint's
    Scheme      scheme;
    int64_t     n, k;    // shape [N,K], 0 until the matrix came by
    RoundError  error;
} PlanEntry;

typedef struct {
    const char *spec;      // canonical: "w4", "w4:g64:asym"
    Scheme      scheme;    // of matrices that have no entry of their own
    Arena      *arena;     // holds names and entries
    int64_t     n, capacity;
    PlanEntry  *at;        // in the order of arrival
} Plan;

/* ERR_USAGE quotes the specification and the part that is wrong. */
MUST_USE Status scheme_parse(Scheme *out, const char *spec);
/* Canonical spelling, e.g. "w4:g64:asym"; SCHEME_TEXT bytes; returns text. */
enum { SCHEME_TEXT = 40 };
const char *scheme_text(const Scheme *s, char *text);
/* One option, text[0..n), for specifications that say more than a scheme (spec.h). seen:
 * 0 before the first option. */
typedef enum {
    OPTION_TAKEN,
    OPTION_OTHER,    // none of SCHEME_OPTIONS
    OPTION_AGAIN     // something was said before about what it says
} OptionFit;
#define SCHEME_OPTIONS "channel, g32, g64, g128, sym, asym, f16, bf16, f32, rtn, clip, gptq"
OptionFit scheme_option(Scheme *s, unsigned *seen, const char *text, size_t n);
/* Bits a weight takes, scales and zero points included, in rows of K; 0 for fp,
 * where the checkpoint's dtype decides. */
double scheme_bits(const Scheme *s, int64_t K);

MUST_USE Status plan_init(Plan *p, Arena *a, const char *spec);
/* Gives one matrix a scheme of its own. */
MUST_USE Status  plan_set(Plan *p, const char *name, Scheme scheme);
const PlanEntry *plan_find(const Plan *p, const char *name);  // NULL: none

/* A WeightEdit (analysis/model.h) with a Plan as context: rounds w [N,K] in
 * place and notes the error. ERR_SHAPE when K is no multiple of the group,
 * ERR_RANGE on NaN, Inf or a scale beyond its dtype, ERR_UNSUPPORTED for METHOD_GPTQ,
 * which is no matter of one matrix alone; w is then untouched. */
MUST_USE Status plan_edit(void *plan, const char *name, float *w, int64_t N, int64_t K);

/* ||w - w'|| / ||w||, 0 for a matrix of zeros. */
double round_error(const RoundError *e);
double plan_error(const Plan *p);    // of all matrices taken together
double plan_bits(const Plan *p);     // mean bits of the weights that were rounded, or 0

#endif
