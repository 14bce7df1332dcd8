/* spec.h - one kind of quantized model, as a study compares them: weights, inputs of
 * linear layers, keys and values.
 *   fp                                    as it is
 *   w<bits>[a<bits>][kv<bits>][:option...]
 * w: bits of weights, 4, 6, 8, or 16 (as they are); a: of the inputs of linear layers, 4,
 * 6, 8, or 16 (the default: as they are); kv: of keys and values, 4, 8 or 16. Names as in
 * the field: w4a16, w8a8, w4a8kv4. Options are those of plan.h, and
 *   awq | smooth | rotate   what is done to the weights before (quantize.h); more than one
 *                           may be given; awq, smooth and gptq need calibration text
 *   atoken | atensor        inputs share a scale by token (default), or by sequence */
#ifndef DQ_SPEC_H
#define DQ_SPEC_H

#include "analysis/probe.h"
#include "quant/quantize.h"

typedef struct {
    const char *text;     // canonical: "w4a8kv4:g64:gptq"
    Scheme      scheme;   // of the weights
    RunQuant    run;      // acts, act_scale, kv; bits 16
    bool        awq, smooth, rotate;
    bool        needs_text;
    bool        in_memory;    // rounding alone: plan_edit does it while the model loads
} Spec;

/* ERR_USAGE quotes the specification and the part that is wrong. text lives in a. */
MUST_USE Status spec_parse(Spec *out, Arena *a, const char *text);

#endif
