/* calibrate.h - runs a text through a model layer by layer and gathers what the
 * inputs of its linear layers are like. Holds the hidden states of the whole text,
 * what passes one tap, and the statistics of one input at a time.
 *
 * A layer whose matrices change one after another is run once all the same:
 *   reach TAP_QKV_IN; q, k, v change; reach TAP_O_IN; o changes; reach TAP_MLP_IN; gate and up
 *   change; reach TAP_DOWN_IN; down changes; advance */
#ifndef DQ_CALIBRATE_H
#define DQ_CALIBRATE_H

#include "analysis/layers.h"
#include "analysis/probe.h"
#include "analysis/score.h"

/* What linear layers with this input see: sums over all rows x [K]. */
typedef struct {
    int64_t k, n_rows;
    Dtype   dtype;      // of the products in gram (op_gram)
    double *gram;       // [K,K] sum of x_i x_j, both halves; NULL: not asked for
    double *sum_abs;    // [K] sum of |x_i|
    double *sum2;       // [K] sum of x_i^2
    float  *absmax;     // [K]
} InputStats;

typedef struct {
    Model           *model;     // of layers_model
    const Sequences *text;
    const Progress  *progress;  // or NULL
    int64_t          batch_tokens;  // 0: half of SCORE_BATCH_TOKENS
    float           *hidden;    // [start[n], C] host: input of the layer to come
    int64_t          n_kept;    // numbers from hidden on that tell all about the layers so far:
                                //   hidden, memory, keys, values
    Tap              reached;   // in the layer at hand: up to there it is run; TAP_HIDDEN: its
                                //   begin. hidden is the residual stream there
    float           *passed;    // what passes the tap: rows of a batch together, the first of
                                //   row t at t * width
    int64_t          width;     // of the widest input that is kept so
    float           *memory;    // [start[n], E] of the last scan, where later layers read it
    float           *keys, *values;   // [start[n], ...] of the layer whose keys others read
} Calibration;

/* hidden = embeddings of the text, ERR_RANGE where a sequence is longer than the positions
 * that the model has learned. progress and batch_tokens are 0: set them after. */
MUST_USE Status calibration_open(Calibration *c, Arena *a, Model *m, const Sequences *text);

/* Begins anew with the same text: as calibration_open left it. */
MUST_USE Status calibration_restart(Calibration *c);

/* Runs layer `layer` of the model (which layers_place has put there, as far as the
 * tap needs: TAP_QKV_IN no matrix at all, TAP_O_IN q, k and v, ...) up to that input
 * and gathers it. Nothing of it is kept: weights may change, and the next run begins where
 * this one did. out's arrays are taken from a. Sums do not depend on the number of
 * threads; the products of the gram are op_gram's, of the model's dtype. ERR_RANGE where an
 * input is NaN or infinite, or, with a gram, beyond 2^58. */
MUST_USE Status calibration_inputs(InputStats *out, Arena *a, Calibration *c, int64_t layer,
                                   Tap tap, bool with_gram);
/* The same where matrices before the tap are as they will be: what follows begins there, and
 * taps before can be asked for no more. (Halves that are parallel have no place between them:
 * after TAP_MLP_IN it begins at TAP_O_IN.) */
MUST_USE Status calibration_reach(InputStats *out, Arena *a, Calibration *c, int64_t layer,
                                  Tap tap, bool with_gram);
/* Runs the whole layer, or the rest of it: hidden becomes its output. */
MUST_USE Status calibration_advance(Calibration *c, int64_t layer);

/* The tap that feeds a matrix; TAP_HIDDEN where none does (Mamba's inner matrices). */
Tap tap_of_weight(WeightKind kind);

/* ||x (w - v)^T||^2 over all rows of the text, from the gram: sum over rows of
 * d G d^T with d = w - v [N,K]; v NULL: zeros. Never below 0; as exact as products
 * with G in f32 are, about 1e-6 of |d| |G| |d|^T. ERR_RANGE where w, v or the gram is
 * not finite. Scratch from a, given back. Runs on the backend's product. */
MUST_USE Status input_error(double *out, Arena *scratch, Backend *be, const InputStats *s,
                            const float *w, const float *v, int64_t N);

#endif
