/* convert.h - a checkpoint in another layout, its weights as they are: microsoft/unilm's
 * differential attention, first form, as transformers' DiffLlama. architectures.md 2. */
#ifndef DQ_CONVERT_H
#define DQ_CONVERT_H

#include "analysis/model.h"
#include "analysis/progress.h"

typedef struct {
    const char     *model;        // as model_load takes it
    const char     *out;          // folder
    Dtype           dtype;        // of all tensors, F32, F16 or BF16. N_DTYPES: F32 where
                                  //   products with subln.weight need it, else as stored
    bool            overwrite;    // OUT may be there already
    size_t          shard_bytes;  // 0: 5e9
    const Progress *progress;     // or NULL
} ConvertOptions;

typedef struct {
    const char *from, *to;        // architectures
    Dtype       dtype;            // of most tensors
    int64_t     n_tensors, n_files;
    size_t      bytes;            // of all tensors
    const char *notes;            // sentences, one a line: what a reader of OUT must know
} ConvertResult;

/* Why the model is not converted, as words for a sentence; NULL: its layout is one that is. */
const char *convert_refusal(const ModelInfo *info);

/* Everything lives in a; a piece of one tensor at a time is in memory. ERR_USAGE where the
 * model has that layout already, and as export_open; ERR_UNSUPPORTED where transformers has
 * no class for it, or where its numbers cannot say the same: the sentence tells why;
 * ERR_RANGE where a number does not fit the dtype. OUT is as it was unless this is OK. */
MUST_USE Status convert_run(ConvertResult *r, Arena *a, const ConvertOptions *o);

#endif
