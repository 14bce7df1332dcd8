/* ref_logit_quant.h - checks (tests/check.h) that attention with quantized logits has to pass
 * on every backend. */
#ifndef DQ_REF_LOGIT_QUANT_H
#define DQ_REF_LOGIT_QUANT_H

#include "tests/kernels/ref_attention.h"

/* Runs a case on be, or where it likes. */
typedef Status (*CaseRun)(Backend *be, Case *c);

void ref_quantized_zeros(Backend *be, CaseRun run);
void ref_quantized_nan(Backend *be, CaseRun run);
void ref_quantized_masked(Backend *be, CaseRun run);

#endif
