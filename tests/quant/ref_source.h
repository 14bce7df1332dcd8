/* ref_source.h - checkpoints to quantize in tests, and a whole export of one by plain
 * rounding. */
#ifndef DQ_REF_SOURCE_H
#define DQ_REF_SOURCE_H

#include "quant/formats/export.h"
#include "tests/analysis/ref_checkpoint.h"

/* A folder of that name in the test's own: 2 layers, C 64, F 96, V 40; q, k, v and o of
 * 64 rows; two rows of zeros; tokenizer.json, LICENSE and a folder. Returns its path. */
const char *ref_source(const char *name, bool diff, bool tied, const char *dtype);

/* All numbers of a tensor of the source (malloc). */
float *ref_source_read(const ModelTensor *t);

/* Rounds and exports the matrices of a layer (-1: tensors of no layer). */
Status ref_export_layer(Export *e, const ExportOptions *o, int64_t layer);
/* From export_open to export_commit, or to the first failure; then export_close. */
Status ref_export(Arena *a, const ExportOptions *o);

#endif
