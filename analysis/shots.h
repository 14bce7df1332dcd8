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

typedef struct ShotPieces ShotPieces;

/* All that does not hang on the model: the same for every cell of a study. */
typedef struct {
    ShotOptions    o;
    const char    *path;
    const char    *name;            // "trec orders": the file's stem
    int64_t        n_shots, n_permutations, n_queries, n_labels;
    const int64_t *demonstrations;  // [n_permutations, n_shots] as they stand: number of the
                                    //   example in the file, from 0
    const int64_t *queries;         // [n_queries] the same
    const int64_t *answers;         // [n_queries] label
    int64_t        n_tokens;        // that a run goes over, as if nothing were shared
    const ShotPieces *pieces;       // tokens; private
} Shots;

/* Everything from a. ERR_FORMAT names file and line; ERR_RANGE for fewer than two labels,
 * and numbers that the file or the context does not allow. */
MUST_USE Status shots_load(Shots *out, Arena *a, Tokenizer *t, const char *path,
                           const ShotOptions *o);

/* correct [n_permutations, n_queries]: 1 or 0. loglik [n_permutations, n_queries, n_labels],
 * or NULL. What a permutation's queries have in common, the demonstrations, is computed once
 * a few queries (choice.h). */
MUST_USE Status shots_run(const Shots *s, Scorer *sc, uint8_t *correct, double *loglik);

typedef struct {
    double mean, lowest, highest;
    double stddev;                  // of the permutations, sample; NaN for one
} ShotScore;

/* accuracy [n_permutations] of each of them. */
ShotScore shots_score(const Shots *s, const uint8_t *correct, double *accuracy);

/* The orders of all cells of a study, correct[w * n_bits + b] as shots_run leaves it, NULL
 * where a cell was not run (its figures are NaN):
 *   order/accuracy                        [weights, logit_bits, permutation]
 *   order/{mean,lowest,highest,stddev}    [weights, logit_bits] of the permutations
 *   order/demonstrations                  [permutation, shot] as in Shots
 *   order/queries                         [question] as in Shots
 * and the attributes order_task (the column's name), order_file, order_labels, order_seed. */
MUST_USE Status shots_series(const Shots *s, const uint8_t *const *correct, int64_t n_weights,
                             int64_t n_bits, SeriesSet *set);

#endif
