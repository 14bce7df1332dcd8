/* shots.h - many-shot classification and its order: does accuracy hang on the order of
 * the demonstrations (arXiv 2410.05258, in-context learning)?
 * A JSONL file, a line an example: {"text": text, "label": text or whole number}.
 *
 * A demonstration is text + "\nLabel: " + label + "\n\n", each encoded for itself: all
 * orders are the same tokens. A query is text + "\nLabel:"; the answer is the label whose
 * " " + label has the largest log-likelihood after it (the first of equal ones, in the
 * order in which the file brings labels up; tokens cut as lm-evaluation-harness cuts
 * them). BOS in front by the rule of windows.h.
 * Demonstrations are drawn by the seed from all classes in turn, as far as each goes;
 * queries from what is left. All permutations have the same of both. */
#ifndef DQ_SHOTS_H
#define DQ_SHOTS_H

#include "analysis/windows.h"

typedef struct {
    int64_t     shots;          // demonstrations; 0: as many as fit
    int64_t     permutations;   // orders tried, >= 1; 10 in the paper
    int64_t     queries;        // items asked; 0: all that are no demonstrations
    int64_t     context;        // most tokens of demonstrations, query and label
    uint64_t    seed;
    bool        by_class;       // demonstrations alternate over classes, else any order
    bool        no_bos;
} ShotOptions;

typedef struct {
    int64_t  n_shots, n_permutations, n_queries, n_labels;
    double  *accuracy;          // [n_permutations]
    uint8_t *correct;           // [n_permutations, n_queries]
    double  *loglik;            // [n_permutations, n_queries, n_labels]
    int64_t *demonstrations;    // [n_permutations, n_shots] as they stood: number of the
                                //   example in the file, from 0
    int64_t *queries;           // [n_queries] the same
    double   mean, lowest, highest;
    double   stddev;            // of the permutations, sample; NaN for one
} ShotScore;

/* Arrays from a. What a permutation's queries have in common, the demonstrations, is
 * computed once a few queries (choice.h). ERR_FORMAT names file and line; ERR_RANGE for
 * fewer than two labels, and numbers that the file or the context does not allow. */
MUST_USE Status shots_run(ShotScore *out, Arena *a, Tokenizer *t, const char *path,
                          const ShotOptions *o, Scorer *sc);

#endif
