/* export.h - a checkpoint of few bits while it is written.
 * A folder OUT.partial beside the target becomes OUT when it is whole; config.json
 * is the last file in it, so what a killed run leaves loads nowhere. Tensors may
 * come in any order; all are known from the start: those of the source, coded as
 * the plan says. One run at a time writes a folder. */
#ifndef DQ_EXPORT_H
#define DQ_EXPORT_H

#include "analysis/layers.h"
#include "quant/methods/rtn.h"

typedef enum {
    FORMAT_COMPRESSED,   // compressed-tensors pack-quantized: any of 4, 6, 8 bits
    FORMAT_INT8,         // compressed-tensors int-quantized W8A8, per channel, sym
    FORMAT_GPTQ,         // GPTQ v1 symmetric, 4 or 8 bits, one scheme for all
    N_FORMATS
} ExportFormat;

typedef struct {
    const char   *path;         // OUT
    ExportFormat  format;
    bool          wide6;        // 6-bit codes in 8-bit packing (formats.md 2.3 b)
    const Layers *source;
    const Plan   *plan;         // a scheme for every quantizable matrix; an entry of its own
                                //   for the head (layers_head_name) where that is coded too
    Dtype         dtype;        // F32, F16, BF16: of float tensors and scales; config's dtype
    bool          own_dtypes;   // but what is F32 and neither of a linear layer nor the
                                //   embedding stays so: lambda, A_log, some norms
    bool          untie;        // a head is written though the source ties it
    bool          act_order;    // label: GPTQ took columns in the order of their activations
    double        damp;         // label
    bool          resume;       // go on with OUT.partial where it fits, else it is an error;
                                //   where there is none: begin
    bool          overwrite;    // OUT, or layers of a stopped run, may be there already
    const char   *settings;     // one line; a resumed run must have the same
    size_t        shard_bytes;  // 0: 5e9
} ExportOptions;

typedef struct Export Export;

/* What a tensor of the source is stored as where it stays floats. */
Dtype export_float_dtype(const ExportOptions *o, const ModelTensor *t);

/* Bytes of all tensors that a matrix [n,k] becomes: format, wide6 and dtype of o. */
size_t export_matrix_bytes(const ExportOptions *o, const Scheme *s, int64_t n, int64_t k);

/* Strings and structs of o stay the caller's until export_close.
 * A plan without bits gives a checkpoint of floats (FORMAT_COMPRESSED only).
 * ERR_USAGE where OUT is there (an empty folder is nothing) and may not be overwritten,
 * is no checkpoint folder, is the source or lies in it, or where a stopped or another
 * run has OUT.partial; ERR_UNSUPPORTED where the format cannot hold the plan (6 bits in
 * GPTQ, asym in INT8 ...): the sentence says what to use; ERR_SHAPE where a group does
 * not divide a row; ERR_UNSUPPORTED for codes of a matrix that is stored transposed;
 * ERR_USAGE where scales are of another dtype; ERR_FORMAT where
 * OUT.partial holds something else; ERR_IO, which a full disk is too: all room is taken
 * here. */
MUST_USE Status export_open(Export **out, Arena *a, const ExportOptions *o);

/* Looks whether export_open would fail, as far as can be seen without touching a file. */
MUST_USE Status export_check(Arena *a, const ExportOptions *o);

/* What the user should know about the plan: which other tool will refuse the result, a
 * line each. NULL: nothing. */
const char *export_note(const Export *e);
/* Layers that the resumed folder holds, 0 for a new one. */
int64_t export_layers_done(const Export *e);
/* Did the tensor, or all parts of the matrix, come with a layer that was done? What is
 * there may come again. */
bool export_has(const Export *e, const char *name);
/* What export_layer_done kept, as it was: report rows, hidden states. Sizes must be those
 * that were kept, else ERR_FORMAT. */
MUST_USE Status export_kept(Export *e, void *rows, size_t row_bytes, float *state, size_t n);

/* Codes of a matrix of the plan with bits. */
MUST_USE Status export_codes(Export *e, const char *name, const RtnCodes *c);
/* A tensor as f32 [its shape], rounded to dtype (ERR_RANGE where F16 overflows, or at a
 * NaN). In parts of whole rows from row `first` on, in order, for large ones; name
 * layers_head_name for an untied head. */
MUST_USE Status export_floats(Export *e, const char *name, const float *x, int64_t first,
                              int64_t n_rows);
/* A tensor as it stands in the source (converted where dtype is another), in pieces:
 * memory stays small, and the source's pages are given back. Plain tensors only. ERR_RANGE
 * names a NaN, an infinity, or what F16 cannot hold. */
MUST_USE Status export_copy(Export *e, const char *name);
/* All of layer, and of those before it, is there: synced, and noted with what the run needs
 * to go on. state NULL: none. Layers come in order; not every one need be told. */
MUST_USE Status export_layer_done(Export *e, int64_t layer, const void *rows, size_t row_bytes,
                                  const float *state, size_t n);
/* Checks that all tensors came (CHECK), writes index, config.json and the files that are
 * carried over (tokenizer, generation config, chat template), syncs, renames. bytes: of
 * all tensors. */
MUST_USE Status export_commit(Export *e, size_t *bytes);
/* Closes; a partial folder stays for --resume once a layer is done, else it goes. NULL
 * is fine. */
void export_close(Export *e);

#endif
