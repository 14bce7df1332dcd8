/* safetensors.h - one .safetensors file, mapped and checked, not read.
 *   u64 N, little-endian | N bytes of JSON | data
 *   name -> {"dtype": "BF16", "shape": [4096,11008], "data_offsets": [begin, end]}
 * Offsets count from byte 8 + N; the data has neither holes nor overlaps. */
#ifndef DQ_SAFETENSORS_H
#define DQ_SAFETENSORS_H

#include "analysis/model.h"
#include "kernels/filemap.h"

enum { SAFETENSORS_MAX_HEADER = 100000000 };  // the format's own limit

typedef struct {
    FileMap      map;
    int64_t      n;
    ModelTensor *tensors;  // [n] by name; data need not be aligned
} SafeTensors;

/* Names live in the arena, tensors in the mapping: until safetensors_close.
 * ERR_IO; ERR_FORMAT names file and tensor for all that formats.md 1.3 lists
 * and for duplicate keys; ERR_UNSUPPORTED for a dtype that is not ours or more
 * than TENSOR_MAX_DIMS dims. */
MUST_USE Status safetensors_open(SafeTensors *f, Arena *a, const char *path);
/* Zeroed or closed twice is fine. */
void safetensors_close(SafeTensors *f);

#endif
