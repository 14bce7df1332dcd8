/* choice.h - multiple choice, scored item by item as lm-evaluation-harness does
 * (scoring.md, rule by rule): log-likelihood of each choice after its context.
 * acc: the first of the largest sums; acc_norm: the first of the largest sums over
 * len(choice) in Unicode code points, without the delimiter. */
#ifndef DQ_CHOICE_H
#define DQ_CHOICE_H

#include "analysis/windows.h"

typedef enum {
    CHOICE_HELLASWAG, CHOICE_ARC, CHOICE_PIQA, CHOICE_WINOGRANDE, CHOICE_BOOLQ,
    CHOICE_OPENBOOKQA,
    CHOICE_GENERIC,      // {"context": text, "choices": [text...], "answer": index} a line
    N_CHOICES
} ChoiceKind;

/* One context with one continuation. Requests of an item are neighbours. */
typedef struct {
    int64_t item;        // of the file
    int64_t choice;
    int64_t length;      // code points of the choice
    bool    truncated;   // lost tokens on the left
} ChoiceRequest;

typedef struct {
    const char          *name;        // "hellaswag", "arc_easy" (file's stem)
    ChoiceKind           kind;
    const char          *path;
    bool                 has_norm;    // acc_norm is reported for this task
    int64_t              n;           // items
    const int64_t       *gold;        // [n]
    const int64_t       *first;       // [n + 1] requests of item i: first[i] .. first[i+1]
    int64_t              n_requests;
    const ChoiceRequest *requests;
    Sequences            seq;         // one a request; targets on the continuation only
    int64_t              n_truncated; // requests
} Choice;

typedef struct {
    int64_t context;     // most tokens of a sequence
    int64_t shots;       // few-shot examples, taken as the harness takes them; 0: none
    const char *shots_path;   // where from (the task's training split); NULL: the file itself
    uint64_t seed;       // of their choice
    bool    no_bos;      // leave BOS out even where the tokenizer adds it
} ChoiceOptions;

/* Is this file one of the tasks' layouts? By the keys of its first line. */
MUST_USE Status choice_kind(ChoiceKind *out, const char *path);
const char *choice_kind_name(ChoiceKind k);   // "hellaswag"

/* Errors name file and line: ERR_FORMAT for bad JSON, a missing or mistyped key, an id
 * met before; ERR_RANGE for an answer out of range, an empty choice, no items, a
 * continuation longer than the context. Nothing is skipped. */
MUST_USE Status choice_load(Choice *c, Arena *a, Tokenizer *t, const char *path,
                            const ChoiceOptions *o);

/* loglik [n_requests]: sum of log p over the continuation; greedy [n_requests]: was
 * every token of it the first choice; may be NULL. What the requests of an item have in
 * common at their beginning is computed once: the same figures as without, to rounding. */
MUST_USE Status choice_run(const Choice *c, Scorer *sc, double *loglik, uint8_t *greedy);

/* correct [n] for acc, norm [n] for acc_norm (may be NULL). */
void choice_correct(uint8_t *correct, uint8_t *norm, const Choice *c, const double *loglik);

#endif
