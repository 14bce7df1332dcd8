/* run.h - what the steps of quantize_run share. */
#ifndef DQ_RUN_H
#define DQ_RUN_H

#include "analysis/calibrate.h"
#include "analysis/textbuf.h"
#include "quant/formats/export.h"
#include "quant/methods/method.h"
#include "quant/methods/rotate.h"
#include "quant/quantize.h"

/* Sets of matrices that share an input, in the order of coding. TAP_HIDDEN stands for those
 * whose inputs are not gathered, inside of Mamba: what comes before them is coded first. */
enum { RUN_SETS = 5 };
extern const Tap RUN_SET[RUN_SETS];

/* What a matrix turned out to be; kept for a resumed run as it lies here. */
typedef struct {
    RoundError weight, output;
    bool       measured;      // output is there
    double     damp;
    int64_t    n_dead;
} MatrixFigures;

typedef struct {
    const QuantizeOptions *o;
    Arena         *a;           // results
    Arena          scratch;     // one layer
    Layers         layers;
    Plan           plan;
    Dtype          dtype;       // of floats and scales in OUT
    ExportFormat   format;
    Export        *export;
    bool           calibrated;  // a text is there
    bool           without_inputs;  // some matrices get no GPTQ, as inputs are not gathered
    bool           scales_norms, scales_values, scales_down;   // the model allows that
    Model          model;
    Calibration    calibration; // all 0 without a text
    Rotation       r1;          // with o->rotate, as
    ValueMap       values;
    GptqFactor     factor;      // of the inputs at hand; u NULL: there is none
    MatrixFigures *figures;     // [n_layers, N_WEIGHTS]
    MatrixFigures  head;        // where it is coded
    double         noted, note_took;  // when a layer was noted last, or work began; seconds of that
    TextBuf        notes;
    int64_t        done, total; // layers, passes of all kinds, for progress
} Run;

/* run_plan.c: a scheme for each matrix, as options and rules say. */
MUST_USE Status run_plan(Run *r);
/* run_transforms.c: rotation and scales, where the model allows them: ERR_UNSUPPORTED says
 * why not. Notes say what is left out. */
MUST_USE Status run_transforms_check(Run *r);
MUST_USE Status run_layer_rotate(Run *r, LayerWeights *w);
MUST_USE Status run_layer_transform(Run *r, LayerWeights *w);
/* run_target.c: the bits of each matrix, by measured errors; needs run_plan. */
MUST_USE Status run_target(Run *r);
/* run_layer.c: reads a layer and turns it; places it; codes and exports it. */
MUST_USE Status run_layer_open(LayerWeights *w, Run *r, int64_t layer);
/* Of inputs before which weights may change still; and of those before which they are final:
 * what follows begins there. */
MUST_USE Status run_layer_inputs(InputStats *in, Run *r, const LayerWeights *w, Tap tap,
                                 bool gram);
MUST_USE Status run_layer_reach(InputStats *in, Run *r, const LayerWeights *w, Tap tap,
                                bool gram);
MUST_USE Status run_layer(Run *r, int64_t layer);
/* run_layer_reach with a gram, and its factor where a matrix needs it: until the caller zeroes
 * that. */
MUST_USE Status run_tap_inputs(InputStats *in, Run *r, const LayerWeights *w, Tap tap);
/* The layer's weights are final: hidden states move on. */
MUST_USE Status run_layer_advance(Run *r, const LayerWeights *w);
/* run_rows.c: codes of a layer whose matrices are coded as they are; is it one? */
bool            run_layer_is_plain(const Run *r, int64_t layer);
MUST_USE Status run_layer_rows(Run *r, int64_t layer);
/* run_rest.c: all tensors that no layer wrote. */
MUST_USE Status run_rest(Run *r);
/* run_gguf.c: the whole run, where OUT is a GGUF file. */
MUST_USE Status run_gguf(Run *r, QuantizeResult *out);
MUST_USE Status run_gguf_check(Run *r);  // what can be known before

/* Room for the codes of a matrix. */
MUST_USE Status run_codes(RtnCodes *out, Arena *a, const Scheme *s, int64_t n, int64_t k);
/* Codes m.w by the plan's scheme of its name, or s; figures of what that did. */
MUST_USE Status run_encode(const RtnCodes *out, MatrixFigures *f, Run *r, const LayerMatrix *m,
                           const Scheme *s, const InputStats *in);
ExportOptions   run_export_options(const Run *r);  // all but the settings line
const Scheme   *run_scheme(const Run *r, const char *name);  // fp of NULL
/* Is the matrix there, of the set, and will it have bits? Has the set such matrices, and
 * inputs that can be gathered? */
bool            run_in_set(const Run *r, const LayerWeights *w, int kind, Tap set);
bool            run_has_inputs(const Run *r, const LayerWeights *w, Tap set);
/* The head's name and shape: that of the embedding where they are tied. */
LayerMatrix     run_head(const Run *r);
bool            run_codes_head(const Run *r);
bool            run_has_rule(const Run *r, const char *name);  // so a budget leaves its bits
void            run_step(Run *r, const char *what);

#endif
