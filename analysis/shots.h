/* shots.h - many-shot classification and its order: does accuracy hang on the order of
 * the demonstrations (arXiv 2410.05258, in-context learning)?
 * A JSONL file, a line an example: {"text": ..., "label": ...}. */
#ifndef DQ_SHOTS_H
#define DQ_SHOTS_H

#include "analysis/choice.h"

typedef struct {
    int64_t     shots;          // demonstrations; 0: as many as fit
    int64_t     permutations;   // orders tried, 10 in the paper
    int64_t     queries;        // items asked; 0: all that are no demonstrations
    int64_t     context;
    uint64_t    seed;
    bool        by_class;       // demonstrations alternate over classes, else any order
    bool        no_bos;
} ShotOptions;

typedef struct {
    int64_t  n_permutations, n_queries, n_labels;
    double  *accuracy;          // [n_permutations]
    double   mean, lowest, highest, stddev;
} ShotScore;

MUST_USE Status shots_run(ShotScore *out, Arena *a, Tokenizer *t, const char *path,
                          const ShotOptions *o, Scorer *sc);

#endif
