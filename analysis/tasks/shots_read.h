/* shots_read.h - the examples of a many-shot file, and their order by class. */
#ifndef DQ_SHOTS_READ_H
#define DQ_SHOTS_READ_H

#include "kernels/arena.h"

typedef struct {
    const char *text;
    int64_t     label;       // index of labels
} Example;

typedef struct {
    const char  *path;
    int64_t      n, n_labels;
    Example     *at;         // [n] in the file's order
    const char **labels;     // [n_labels] in the order of their first example
} Examples;

MUST_USE Status examples_read(Examples *e, Arena *a, const char *path);

/* items [n] to out [n] so that classes alternate, in an order of classes that is drawn, as
 * far as each goes; items of a class stay in the order they have. */
MUST_USE Status examples_alternate(int64_t *out, const Examples *e, const int64_t *items,
                                   int64_t n, uint64_t *state);

#endif
