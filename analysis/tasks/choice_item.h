/* choice_item.h - the lines of a task's file as questions in text: what is put to the
 * model, before any tokenizer. Rules: lm-evaluation-harness 0.4.13, lm_eval/tasks. */
#ifndef DQ_CHOICE_ITEM_H
#define DQ_CHOICE_ITEM_H

#include "analysis/choice.h"
#include "analysis/json.h"

/* Between context and continuation: target_delimiter of all these tasks. */
#define CHOICE_DELIMITER " "

typedef struct {
    const char  *id;            // NULL: the line has none
    int64_t      line;          // in the file, from 1
    int64_t      n;             // choices
    const char **context;       // [n] one text n times, but for WinoGrande
    const char **continuation;  // [n] what is scored, without the delimiter in front
    const char **choice;        // [n] whose length acc_norm divides by
    int64_t      gold;
} ChoiceItem;

/* All lines but blank ones, in order, of the layout that the first one has. Errors as
 * choice_load. */
MUST_USE Status choice_items(ChoiceItem **out, int64_t *n, ChoiceKind *kind, Arena *a,
                             const char *path);
/* Do they ask the same? */
bool choice_item_same(const ChoiceItem *x, const ChoiceItem *y);

/* --- for the layouts --- */

/* A line that is being read; texts are copied to the arena. */
typedef struct {
    const char *path;
    int64_t     line;
    const Json *object;
    Arena      *arena;
} ChoiceLine;

#define FAIL_LINE(l, code, fmt, ...)                                           \
    FAIL(code, "%s:%lld: " fmt, (l)->path, (long long)(l)->line, ##__VA_ARGS__)

/* The member of an object in the line; ERR_FORMAT where it is missing. */
MUST_USE Status line_member(const Json **out, const ChoiceLine *l, const Json *object,
                            const char *key);
MUST_USE Status line_text(const char **out, const ChoiceLine *l, const char *key);
/* A list of texts; key for messages. */
MUST_USE Status line_texts(const char ***out, int64_t *n, const ChoiceLine *l,
                           const Json *list, const char *key);
/* A whole number, or a text that is one. */
MUST_USE Status line_whole(int64_t *out, const ChoiceLine *l, const char *key);
/* ERR_RANGE unless first <= answer < end. */
MUST_USE Status line_answer(const ChoiceLine *l, const char *key, int64_t answer,
                            int64_t first, int64_t end);
MUST_USE Status line_printf(const char **out, const ChoiceLine *l, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* One context for n choices, which are what is scored. */
MUST_USE Status line_item(ChoiceItem *it, const ChoiceLine *l, const char *context,
                          const char **choices, int64_t n);
/* choices.text and choices.label; gold is where answerKey, spaces before it not counted
 * where `trim`, stands in choices.label. */
MUST_USE Status line_labelled(ChoiceItem *it, const ChoiceLine *l, const char *context,
                              bool trim);

/* Python's str.strip and str.rstrip: [*begin, *end) loses white space. */
void choice_strip(const char **begin, const char **end);
void choice_rstrip(const char *begin, const char **end);

MUST_USE Status choice_hellaswag(ChoiceItem *it, const ChoiceLine *l);
MUST_USE Status choice_arc(ChoiceItem *it, const ChoiceLine *l);
MUST_USE Status choice_piqa(ChoiceItem *it, const ChoiceLine *l);
MUST_USE Status choice_winogrande(ChoiceItem *it, const ChoiceLine *l);
MUST_USE Status choice_boolq(ChoiceItem *it, const ChoiceLine *l);
MUST_USE Status choice_openbookqa(ChoiceItem *it, const ChoiceLine *l);
MUST_USE Status choice_generic(ChoiceItem *it, const ChoiceLine *l);

#endif
