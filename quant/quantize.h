/* quantize.h - from a checkpoint to one of few bits: the whole run.
 *
 *   layers -> rotation -> AWQ, SmoothQuant -> codes of each matrix -> checkpoint
 *
 * one layer after another. With a text, each matrix is fitted to the inputs it gets
 * when everything before it is coded already (q, k, v; then o; then gate, up; then
 * down; then the next layer). Without one, to its own numbers. */
#ifndef DQ_QUANTIZE_H
#define DQ_QUANTIZE_H

#include "analysis/score.h"
#include "analysis/series.h"
#include "quant/plan.h"

/* Matrices whose name the pattern matches (fnmatch: * ? [...]) get the scheme. */
typedef struct {
    const char *pattern;
    Scheme      scheme;
} SchemeRule;

typedef struct {
    const char       *model;        // folder, or .gguf file
    const char       *out;          // folder, or file for GGUF
    const char       *format;       // "compressed-tensors", "gptq", "int8", "gguf"
    const char       *gguf_type;    // "Q4_K_M"; NULL: Q4_K_M, Q6_K, Q8_0 as scheme.bits says
    Scheme            scheme;       // of all quantizable matrices; .scale is not looked at
    const SchemeRule *rules;        // [n_rules], later ones win
    int64_t           n_rules;
    double            target_bits;  // mean bits of a coded weight, scales included; 0: none.
    double            target_bytes; // of the checkpoint's tensors; 0: none. Either picks the
                                    //   bits 4, 6, 8 of each matrix by measured errors
    bool              rotate, awq;
    double            smooth;       // SmoothQuant's alpha in (0,1); 0: none
    uint64_t          seed;         // of the rotations
    double            damp;         // of GPTQ; 0: 0.01
    Dtype             dtype;        // of floats and scales; N_DTYPES: that of most of the
                                    //   checkpoint, but F32 vectors stay F32
    Dtype             products;     // F32, or BF16: of the passes over the text
    bool              wide6;        // 6-bit codes in 8-bit packing
    bool              resume, overwrite, requantize;
    double            note_seconds; // at least, from one note for --resume to the next, more
                                    // where noting is slow; 0: each layer is noted
    const Sequences  *text;         // to calibrate on, NULL: none
    const char       *text_name;    // for the settings of a resumed run
    Backend          *backend;      // for products; needed with text
    const Progress   *progress;     // or NULL
} QuantizeOptions;

/* One matrix. Errors are relative: ||w - w'|| / ||w||, and the same of its outputs
 * over all rows of the text; NaN where it was not measured. */
typedef struct {
    const char *name;
    const char *format;        // "w4:g64:gptq", "Q6_K", "BF16"
    int64_t     n, k;
    double      bits;          // a weight, scales included
    double      weight_error, output_error;
    double      damp;          // that GPTQ needed, 0: no GPTQ
    int64_t     n_dead;        // inputs that were always 0
} QuantizeRow;

typedef struct {
    QuantizeRow *rows;         // [n_rows] in the order of layers
    int64_t      n_rows;
    int64_t      n_weights;    // coded
    double       bits;         // mean of a coded weight
    size_t       bytes_before, bytes_after;   // of all tensors
    const char  *notes;        // sentences, one a line: what a reader of OUT must know
} QuantizeResult;

/* Whether quantize_run could begin: options, model and OUT, all but numbers and room on the
 * disk. with_text: a text will be there. Writes nothing; backend and text are not needed. */
MUST_USE Status quantize_check(const QuantizeOptions *o, bool with_text);

/* Everything lives in a. ERR_USAGE where options do not go together; ERR_UNSUPPORTED,
 * ERR_SHAPE, ERR_RANGE name the tensor; OUT is as it was unless this returns OK. */
MUST_USE Status quantize_run(QuantizeResult *r, Arena *a, const QuantizeOptions *o);

/* The result as series quant/... [matrix] and attributes quant_...: README. */
MUST_USE Status quantize_series(const QuantizeResult *r, SeriesSet *set);

#endif
