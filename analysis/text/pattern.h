/* pattern.h - regular expressions of a tokenizer.json, and plain texts to find.
 * The files are written for Oniguruma with Unicode 16; a pattern is translated
 * for PCRE2, or refused where the two would differ. */
#ifndef DQ_TEXT_PATTERN_H
#define DQ_TEXT_PATTERN_H

#include "analysis/text/piece.h"
#include "analysis/text/utf8.h"

typedef struct Pattern Pattern;

/* All patterns of a tokenizer; {0} is empty. PCRE2 keeps its own memory: close
 * it before the arena that it was built in. */
typedef struct {
    Pattern *last;
} PatternList;
void pattern_close(PatternList *list);

/* name is what messages call the place ("tokenizer.json: pre_tokenizer").
 * ERR_UNSUPPORTED names a construct that is not known, ERR_FORMAT a pattern
 * that does not compile. */
MUST_USE Status pattern_compile(Pattern **out, PatternList *list, Arena *a, const char *name,
                                const char *regex);
/* Finds text[0..n) itself, n >= 1; the text is kept, not copied. */
MUST_USE Status pattern_literal(Pattern **out, Arena *a, const char *text, int64_t n);

/* A walk over the matches in a text of valid UTF-8, from left to right. */
typedef struct {
    const Pattern *pattern;
    const char    *text;
    int64_t        n, at;
    int64_t        last_end;  // -1: no match yet
} PatternWalk;

PatternWalk pattern_walk(const Pattern *p, const char *text, int64_t n);
/* The next match to *from, *to; *from is -1 where there is none. ERR_RANGE
 * where PCRE2 gives up (its limits of steps and memory). */
MUST_USE Status pattern_next(PatternWalk *w, int64_t *from, int64_t *to);

#endif
