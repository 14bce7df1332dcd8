/* load.h - the weights of a checkpoint on their way into a Model: all of them when it is
 * opened, or, where they are streamed, a layer or the head when the pass comes to it. */
#ifndef DQ_LOAD_H
#define DQ_LOAD_H

#include "analysis/model/source.h"

struct Loader {
    const Source *source;    // open as long as the model is
    Source        own;       // that, where model_load opened it
    ModelInfo     info;
    ModelOptions  options;
    int64_t       part_rows; // of a batch that go through a streamed layer at once; 0: as memory
                             //   has it
    Arena         scratch;   // empty between calls
};

/* What m has once, into its backend's memory, but for the head; the table of layers comes
 * from a, empty. */
MUST_USE Status load_once(Model *m, Arena *a);
/* A layer, or the head, packed: until the backend is rewound. Then load_forget leaves of the
 * layer what is always there: lambda. */
MUST_USE Status load_layer(Model *m, int64_t layer);
void            load_forget(Model *m, int64_t layer);
MUST_USE Status load_head(Model *m);
/* All numbers of the embedding are looked at: ERR_RANGE where one is not finite. */
MUST_USE Status load_check_embed(Model *m);

/* x [T,C] in the backend's memory = rows ids [T] of the embedding, from the file. ERR_RANGE
 * for an id that it has no row for. */
MUST_USE Status load_rows(Model *m, Tensor *x, const int32_t *ids);

#endif
