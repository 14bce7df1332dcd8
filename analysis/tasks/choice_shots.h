/* choice_shots.h - the examples that stand before a question, as the harness's default
 * sampler draws them: see ChoiceOptions. */
#ifndef DQ_CHOICE_SHOTS_H
#define DQ_CHOICE_SHOTS_H

#include "analysis/tasks/choice_item.h"
#include "analysis/tasks/pyrandom.h"

typedef struct {
    int64_t           k;         // examples a question
    const char       *path;      // where from
    const ChoiceItem *pool;      // [n]
    int64_t           n;
    bool              exclude;   // the question itself is not an example of itself
    PyRandom          random;
    int64_t          *drawn;     // [k + 1]
} ChoiceShots;

/* items [n] are the questions, of this kind; o->shots may be 0. */
MUST_USE Status choice_shots_init(ChoiceShots *s, Arena *a, const char *path,
                                  const ChoiceItem *items, int64_t n, ChoiceKind kind,
                                  const ChoiceOptions *o);
/* What stands before question `it`, "" without examples. Questions must be asked for in
 * their order: the generator goes on from one to the next. */
MUST_USE Status choice_shots_text(const char **out, Arena *a, ChoiceShots *s,
                                  const ChoiceItem *it);

#endif
