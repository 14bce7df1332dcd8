/* normalizer.h - what happens to the text before it is cut into words. */
#ifndef DQ_TEXT_NORMALIZER_H
#define DQ_TEXT_NORMALIZER_H

#include "analysis/text/pattern.h"

enum { NORMALIZER_MAX = 16 };

typedef struct {
    enum { NORMAL_NFC, NORMAL_PREPEND, NORMAL_REPLACE } kind;
    const Pattern *pattern;  // NORMAL_REPLACE
    const char    *text;     // what is put in front, or instead
} NormalStep;

typedef struct {
    int        n;
    NormalStep step[NORMALIZER_MAX];
} Normalizer;

/* Writes into space where something changes. p may be empty. */
MUST_USE Status normalizer_apply(const Normalizer *z, Piece *p, PieceSpace *space);

MUST_USE Status normalizer_prepend(Piece *p, PieceSpace *space, const char *text);
MUST_USE Status normalizer_replace(Piece *p, PieceSpace *space, const Pattern *pattern,
                              const char *text);

#endif
