/* needles_parts.h - filler text in sentences, and the text of one episode. */
#ifndef DQ_NEEDLES_PARTS_H
#define DQ_NEEDLES_PARTS_H

#include "analysis/needles.h"
#include "analysis/tasks/episode.h"

extern const char *const NEEDLES_CITY[NEEDLES_CITIES];

/* A text cut where sentences or lines end. The white space behind a sentence is its own,
 * so that sentences in a row are the text as it stands. */
typedef struct {
    const char    *name, *text;
    int64_t        n;         // sentences
    const int64_t *start;     // [n + 1] byte of text
    const int64_t *tokens;    // [n + 1] tokens of the text that begin before it
} Filler;

enum {
    FILLER_SENTENCE = 400,    // bytes; after these a sentence ends at the next space,
    FILLER_WORD = 1600        // and after these anywhere
};

MUST_USE Status filler_cut(Filler *f, Arena *a, Tokenizer *t, const NeedleOptions *o);

/* Makes episode i of the set, as long as the context allows; texts from a. */
MUST_USE Status needles_episode(Episode *e, Arena *a, Tokenizer *t, const Filler *f,
                                const NeedleOptions *o, int64_t i);

#endif
