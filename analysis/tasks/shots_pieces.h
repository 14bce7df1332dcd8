/* shots_pieces.h - the tokens that prompts of many shots are put together from. */
#ifndef DQ_SHOTS_PIECES_H
#define DQ_SHOTS_PIECES_H

#include "analysis/shots.h"

typedef struct {
    int32_t *ids;
    int64_t  n;
    int64_t  n_context;   // of a query with a label: tokens before the label
} Piece;

struct ShotPieces {
    int32_t      bos;     // -1: none
    const Piece *shots;   // [examples of the file] of demonstrations; others are empty
    const Piece *asked;   // [examples of the file, n_labels] query and label
};

/* Tokens of query i with label k. */
static inline const Piece *shots_asked(const Shots *s, int64_t i, int64_t k)
{
    return &s->pieces->asked[s->queries[i] * s->n_labels + k];
}

#endif
