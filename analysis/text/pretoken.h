/* pretoken.h - cutting a text into words, step by step.
 * Each word goes through all steps and to the caller before the next is cut, so
 * that memory does not grow with the number of words. */
#ifndef DQ_TEXT_PRETOKEN_H
#define DQ_TEXT_PRETOKEN_H

#include "analysis/text/pattern.h"

enum { PRETOKEN_MAX = 32 };

/* What becomes of the separators that a split finds. */
typedef enum {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS,
    N_SPLITS
} SplitRule;

typedef enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER, N_PREPENDS } PrependRule;

typedef struct {
    enum { PRETOKEN_SPLIT, PRETOKEN_REPLACE, PRETOKEN_PREPEND } kind;
    const Pattern *pattern;  // SPLIT, REPLACE
    SplitRule      rule;     // SPLIT
    bool           invert;   // SPLIT: the pattern finds words, not separators
    const char    *text;     // REPLACE: instead; PREPEND: in front, unless it is there
    bool           first;    // PREPEND: only at the beginning of the input
} PretokenStep;

typedef struct {
    int          n;
    PretokenStep step[PRETOKEN_MAX];
    bool         bytes;      // words end as bytes (ByteLevel), the last step of all
    bool         origin;     // a step asks where in the input a word began
} Pretokenizer;

/* Sets *enough where no more words are wanted. */
typedef Status (*PretokenWord)(void *context, const Piece *word, bool *enough);

/* Calls word with every word of p in order, until it has enough; none is empty. What it
 * does not keep is gone afterwards: space is rewound. */
MUST_USE Status pretoken_run(const Pretokenizer *z, PieceSpace *space, const Piece *p,
                             PretokenWord word, void *context);

#endif
