/* tensorfile.h - one .safetensors file while it is written (formats.md 1.1, 1.2).
 * Dtypes and shapes of all its tensors are known before: the header goes first and the
 * room for the whole file is taken, so that a full disk is told at once. Then data comes:
 * tensors in any order, the pieces of one from its start on. */
#ifndef DQ_TENSORFILE_H
#define DQ_TENSORFILE_H

#include "kernels/arena.h"
#include "kernels/tensor.h"

typedef struct {
    const char *name;
    Tensor      view;   // dtype and shape; no data
    size_t      begin;  // place in the data: tensorfile_layout's
    size_t      came;   // bytes that were put
} OutTensor;

typedef struct {
    const char *path;
    int         fd;        // -1: not open
    int64_t     n;
    OutTensor  *at;        // [n] the caller's, in the order of the file
    const char *header;    // size and JSON
    size_t      n_header;  // bytes before the data
    size_t      n_data;
} TensorFile;

/* Most bytes that t takes in a file: data and its line in the header. */
size_t tensorfile_room(const OutTensor *t);
/* Sorts at[0..n) (wide dtypes first, then by name) and sets begin. Touches no file.
 * Names differ, sizes do not overflow. The same bytes as the safetensors package
 * writes. ERR_FORMAT where the header passes the format's limit of 100 MB. */
MUST_USE Status tensorfile_layout(TensorFile *f, Arena *a, const char *path, OutTensor *at,
                                  int64_t n);
/* Makes the file, header in it and room taken. ERR_IO. */
MUST_USE Status tensorfile_create(TensorFile *f);
/* Opens what tensorfile_create made earlier. ERR_FORMAT where it is not this file:
 * another header or size. */
MUST_USE Status tensorfile_reopen(TensorFile *f);

/* n bytes of t from byte `offset` of it on: 0 (begins anew) or where the last piece
 * ended. t is one of f->at. ERR_IO. */
MUST_USE Status tensorfile_put(TensorFile *f, OutTensor *t, size_t offset, const void *data,
                               size_t n);
bool            tensorfile_is_whole(const OutTensor *t);
/* What was put is on disk. */
MUST_USE Status tensorfile_sync(TensorFile *f);
/* A zeroed handle, or twice, is fine. */
void tensorfile_close(TensorFile *f);

#endif
