/* journal.h - how far a checkpoint has come: a file in the folder being written, from
 * which a stopped run goes on. Written beside and renamed, after the data it tells of
 * was synced; so it is never ahead of the data. */
#ifndef DQ_JOURNAL_H
#define DQ_JOURNAL_H

#include "kernels/arena.h"

#define JOURNAL_NAME "diffquant.resume"

typedef struct {
    const char    *path;
    const char    *settings;   // line of the caller
    uint64_t       source;     // print of the files that are read
    int64_t        n_tensors;
    unsigned char *whole;      // [n_tensors] the caller's: 1 where a tensor was whole
    int64_t        layers;     // done; 0: there is no journal
    uint64_t       row_bytes, n_state;  // what else was kept
} Journal;

/* path, settings, source, n_tensors and whole are set; reads the rest. No file: layers 0.
 * ERR_USAGE where it is of a run with other settings or another source; ERR_FORMAT where
 * it is no journal. */
MUST_USE Status journal_read(Journal *j);
/* layers and whole are set. state [n_state] may be NULL where that is 0. */
MUST_USE Status journal_write(Journal *j, Arena *scratch, const void *rows, size_t row_bytes,
                              const float *state, size_t n_state);
/* What was kept. ERR_FORMAT where the sizes are others. */
MUST_USE Status journal_kept(const Journal *j, void *rows, size_t row_bytes, float *state,
                             size_t n_state);

#endif
