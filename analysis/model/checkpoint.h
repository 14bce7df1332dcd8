/* checkpoint.h - the tensors of a Hugging Face folder: model.safetensors, or
 * the shards that model.safetensors.index.json names. Mapped, not read. Those of a
 * GGUF file (gguf_source.h) make one too. */
#ifndef DQ_CHECKPOINT_H
#define DQ_CHECKPOINT_H

#include "analysis/model/gguf_file.h"
#include "analysis/model/safetensors.h"

struct Checkpoint {
    int64_t      n_files;
    SafeTensors *files;    // [n_files]
    GgufFile    *gguf;     // or this one, else NULL
    int64_t      n;
    ModelTensor *tensors;  // [n] of all files, by name
};

/* ERR_FORMAT where a shard lacks a tensor that the index puts there, where two
 * shards hold the same one, or where a shard's name leaves the folder; ERR_IO
 * for a missing file; else as safetensors_open. */
MUST_USE Status checkpoint_open(Checkpoint *c, Arena *a, const char *folder);
/* Zeroed or closed twice is fine. */
void checkpoint_close(Checkpoint *c);
/* NULL where there is none of that name. */
const ModelTensor *checkpoint_find(const Checkpoint *c, const char *name);

#endif
