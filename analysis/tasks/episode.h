/* episode.h - the lines of a retrieval file as text, checked. See retrieval.h. */
#ifndef DQ_EPISODE_H
#define DQ_EPISODE_H

#include <stdint.h>

#include "kernels/arena.h"

typedef struct {
    const char *id;
    int64_t     line;        // in the file, from 1
    int64_t     needles;
    const char *text;        // context, then answer
    size_t      n_text;      // bytes of both
    size_t      n_context;   // bytes before the answer, closing spaces not counted
    size_t      span_first;  // [span_first, span_end) bytes of the context
    size_t      span_end;
} Episode;

/* All lines but blank ones, in order. Errors as retrieval_load. */
MUST_USE Status episodes_read(Episode **out, int64_t *n, Arena *a, const char *path);

#endif
