/* choice_tokens.h - contexts and continuations as tokens, by the harness's rules. */
#ifndef DQ_CHOICE_TOKENS_H
#define DQ_CHOICE_TOKENS_H

#include "analysis/tasks/choice_item.h"

typedef struct {
    Tokenizer  *tokenizer;
    const char *path;        // for messages
    int64_t     line;
    int64_t     context;     // most rows
    bool        no_bos;
    int32_t     prefix;      // stands for an empty context: BOS, else EOS, else -1
} ChoiceTokens;

/* Rows of a request: ids[n + 1], of which the last n_scored are to be predicted. */
typedef struct {
    int32_t *ids;
    int64_t  n, n_scored;
    bool     truncated;
} ChoiceRow;

void choice_tokens_init(ChoiceTokens *t, Tokenizer *tokenizer, const char *path,
                        const ChoiceOptions *o);
/* rows [it->n], shots before each context; ids in a. */
MUST_USE Status choice_tokens_item(ChoiceRow *rows, Arena *a, ChoiceTokens *t,
                                   const char *shots, const ChoiceItem *it);

#endif
