/* choice.h - multiple choice, scored item by item as lm-evaluation-harness 0.4.13 does:
 * log-likelihood of each choice after its context.
 * acc: the first of the largest sums; acc_norm: the first of the largest sums over
 * len(choice) in Unicode code points, without the delimiter; a NaN comes before all
 * numbers, as in numpy.argmax.
 *
 * Texts are those of the harness's task files, layout by layout (analysis/tasks/choice_*.c).
 * Tokens are those of its Hugging Face model: context and continuation as they are encoded
 * together, cut after as many tokens as the context has alone, with the tokens that the
 * tokenizer adds by itself; the last `context` tokens are read, BOS is lost like any other.
 * Examples are those of its default sampler: the same lines in the same order for the same
 * seed, where the harness draws for all items of the file from the first on. It tells items
 * by all their keys, we by id, texts and answer. Chat templates and descriptions: none. */
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
    uint64_t seed;       // of their drawing; the harness's own is 1234
    bool    no_bos;      // leave BOS out even where the tokenizer adds it; an empty context
                         //   is BOS all the same
} ChoiceOptions;

/* Is this file one of the tasks' layouts? By the keys of its first line; ERR_FORMAT where
 * they are those of no task. */
MUST_USE Status choice_kind(ChoiceKind *out, const char *path);
const char *choice_kind_name(ChoiceKind k);   // "hellaswag"

/* Errors name file and line: ERR_FORMAT for bad JSON, a missing or mistyped key, an id
 * met before; ERR_RANGE for an answer out of range, an empty choice, no items, a choice
 * that adds no token, a choice of more tokens than the context (the harness stops there
 * too), a file of examples with too few. Nothing is skipped. */
MUST_USE Status choice_load(Choice *c, Arena *a, Tokenizer *t, const char *path,
                            const ChoiceOptions *o);

/* loglik [n_requests]: sum of log p over the continuation; greedy [n_requests]: was
 * every token of it the first choice; may be NULL. What the requests of an item have in
 * common at their beginning is computed once, with the same figures: not so where sc has a
 * probe or rounds a row by what comes after it (scales of tensors and heads, sc->quant.kv),
 * or where angles depend on the length (model_can_branch). */
MUST_USE Status choice_run(const Choice *c, Scorer *sc, double *loglik, uint8_t *greedy);

/* correct [n] for acc, norm [n] for acc_norm (may be NULL). */
void choice_correct(uint8_t *correct, uint8_t *norm, const Choice *c, const double *loglik);

#endif
