/* episode.h - a retrieval question as text: lines of a file, checked, or made elsewhere.
 * See retrieval.h. */
#ifndef DQ_EPISODE_H
#define DQ_EPISODE_H

#include <stdint.h>

#include "analysis/retrieval.h"

/* [first, end) bytes of an Episode's text. */
typedef struct {
    size_t first, end;
} TextSpan;

typedef struct {
    const char *id;
    int64_t     line;        // in the file, from 1; of the set
    int64_t     needles;
    const char *text;        // context, then answer
    size_t      n_text;      // bytes of both
    size_t      n_context;   // bytes before the answer, closing spaces not counted
    TextSpan    span;        // of the context
    int64_t     n_given;     // parts of the answer that are not asked
    TextSpan   *given;       // [n_given] in order, apart
} Episode;

/* All lines but blank ones, in order. Errors as retrieval_load. */
MUST_USE Status episodes_read(Episode **out, int64_t *n, Arena *a, const char *path);

/* What retrieval_load makes of them. path names the set, in messages and tasks. */
MUST_USE Status episodes_ask(Retrieval *r, Arena *a, Tokenizer *t, const char *path,
                             const Episode *e, int64_t n, int64_t context, bool no_bos);

#endif
