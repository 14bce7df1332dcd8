/* shards.h - which tensor goes into which file of a checkpoint folder: one
 * model.safetensors where all fits, else model-00001-of-0000N.safetensors with an
 * index (formats.md 1.5). */
#ifndef DQ_SHARDS_H
#define DQ_SHARDS_H

#include "quant/formats/tensorfile.h"

typedef struct {
    int64_t     n;
    OutTensor  *at;        // [n] file by file; the caller's
    OutTensor **by_name;   // [n]
    int64_t     n_files;
    TensorFile *files;     // [n_files]
    size_t      n_data;    // bytes of all tensors
} Shards;

/* Sorts at[0..n): layer after layer as far as names tell, cut where a file would pass
 * limit bytes, header included (a larger tensor gets a file to itself); then as
 * tensorfile_layout. Touches no file. */
MUST_USE Status shards_layout(Shards *s, Arena *a, const char *folder, OutTensor *at,
                              int64_t n, size_t limit);
/* All files, new or as an earlier run left them. As tensorfile.h. */
MUST_USE Status shards_create(Shards *s);
MUST_USE Status shards_reopen(Shards *s);

OutTensor      *shards_find(const Shards *s, const char *name);  // NULL: none
MUST_USE Status shards_put(Shards *s, OutTensor *t, size_t offset, const void *data, size_t n);
MUST_USE Status shards_sync(Shards *s);
/* First tensor that is not whole; NULL: all are. */
const OutTensor *shards_missing(const Shards *s);
/* Writes model.safetensors.index.json into folder where there are several files. */
MUST_USE Status shards_write_index(const Shards *s, Arena *scratch, const char *folder);
size_t          shards_bytes(const Shards *s);  // of all tensors
/* A zeroed handle, or twice, is fine. */
void shards_close(Shards *s);

#endif
