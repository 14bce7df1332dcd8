/* gguf.h - a model of the llama class as one GGUF file (formats.md 4).
 * One pass over the checkpoint, tensor by tensor; written beside and renamed. */
#ifndef DQ_GGUF_H
#define DQ_GGUF_H

#include "analysis/calibrate.h"
#include "analysis/layers.h"

typedef enum {
    GGUF_F32, GGUF_F16, GGUF_BF16, GGUF_Q4_0, GGUF_Q4_1, GGUF_Q5_0, GGUF_Q5_1, GGUF_Q8_0,
    GGUF_Q4_K_S, GGUF_Q4_K_M, GGUF_Q5_K_S, GGUF_Q5_K_M, GGUF_Q6_K, N_GGUF_TYPES
} GgufType;

/* ERR_USAGE lists the names. "Q4_K_M", any case. */
MUST_USE Status gguf_type_parse(GgufType *out, const char *name);

/* Per matrix: what it became. */
typedef struct {
    const char *name;       // the checkpoint's
    const char *type;       // "Q6_K", "F16"
    int64_t     n, k;
    double      bits;       // a weight, scales included
    double      weight_error;   // relative, as round_error
} GgufRow;

typedef struct {
    const char       *path;        // OUT.gguf
    GgufType          type;
    Layers           *source;
    /* importance of the inputs (mean of x^2), or NULL: for tap t of layer l at
     * [l * N_TAPS + t], k values each */
    const double    **importance;
    bool              overwrite;
    const Progress   *progress;    // or NULL
    GgufRow          *rows;        // [info.n_tensors] room; filled
    int64_t           n_rows;      // out
    size_t            bytes;       // out
    const char       *warning;     // out: a sentence on what is not as it should be, or NULL
} GgufOptions;

/* Whether gguf_write can be, as far as path and config tell: its errors but ERR_RANGE. */
MUST_USE Status gguf_check(Arena *a, const GgufOptions *o);

/* ERR_UNSUPPORTED for a differential model or what the llama graph cannot say (the sentence
 * names what to use instead), for a tokenizer whose kind GGUF has no name for; ERR_USAGE where
 * the file is there and may not be overwritten, or is no GGUF; ERR_RANGE for a weight that
 * the type cannot hold; ERR_IO. A checkpoint without tokenizer.json is written without one,
 * with a warning. Threads do not change the bytes. */
MUST_USE Status gguf_write(Arena *a, GgufOptions *o);

#endif
