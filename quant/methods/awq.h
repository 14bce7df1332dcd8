/* awq.h - activation-aware scaling (Lin et al. 2023; formats.md 5.4): columns that meet
 * large inputs are multiplied by s before rounding, and what makes the inputs is divided
 * by s, so that the function stays and these columns round less.
 *
 * Tried are s = x^r and s = x^r / (w^(1-r) + 1e-4), r = 0.05 ... 0.95, over the root
 * of largest times smallest; x: mean |input|; w: mean over rows of |weight| over its
 * group's largest. The least error of the outputs over all rows of the text wins: sum
 * over the matrices that read the input of ||x (w - w')^T||^2, where w' is rounded as
 * the scheme says (GPTQ: by the range of least error, which is what it starts from).
 * The tries look at AWQ_ROWS rows of a matrix, or fewer where rows are long, evenly
 * spread; the winner must beat no scaling on all rows. So no call makes the error larger.
 *
 * Each call: in is of the matrices that read, with gram, and becomes that of the new
 * inputs; *ratio is r, or 0 where nothing was changed; scheme [N_WEIGHTS] as by
 * WeightKind; scratch is given back. On failure (ERR_MEMORY, what rtn_encode fails of,
 * the backend's) nothing was changed. */
#ifndef DQ_AWQ_H
#define DQ_AWQ_H

#include "analysis/calibrate.h"
#include "quant/methods/valuemap.h"
#include "quant/plan.h"

enum { AWQ_ROWS = 512 };

/* Norm 0 with q, k, v; norm 1 with gate, up; norm 0 with all where the halves share it. */
MUST_USE Status awq_norm(LayerWeights *w, int norm, InputStats *in, const Scheme *scheme,
                         Arena *scratch, Backend *be, double *ratio);
/* Rows of up, columns of down: down reads act(gate) * up, or relu(up). Before up has been
 * rounded. up: w's, or rows of its W_GATE_UP. */
MUST_USE Status awq_up_down(LayerWeights *w, LayerMatrix *up, InputStats *in,
                            const Scheme *scheme, Arena *scratch, Backend *be, double *ratio);
/* Rows of v, columns of o. ERR_UNSUPPORTED where a norm of each head lies between them
 * (head_norm_eps >= 0), which scales of single channels would change, and where several
 * heads read the same rows. */
MUST_USE Status awq_value_out(LayerWeights *w, const ValueMap *map, double head_norm_eps,
                              InputStats *in, const Scheme *scheme, Arena *scratch,
                              Backend *be, double *ratio);

#endif
