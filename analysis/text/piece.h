/* piece.h - a stretch of text that remembers where in the input it came from. */
#ifndef DQ_TEXT_PIECE_H
#define DQ_TEXT_PIECE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"

/* A stretch of text on its way to the model. Valid UTF-8 except where said
 * otherwise. Byte i came from byte origin[i] of the input, base + i where
 * origin is NULL. Owns nothing. */
typedef struct {
    const char    *text;
    int64_t        n;
    int64_t        base;
    const int64_t *origin;
} Piece;

/* Where changed pieces are written, and whether their origin is kept. */
typedef struct {
    Arena *arena;
    bool   track;
} PieceSpace;

static inline Piece piece_sub(Piece p, int64_t from, int64_t to)
{
    return (Piece){p.text + from, to - from, p.origin ? p.origin[from] : p.base + from,
                   p.origin ? p.origin + from : NULL};
}

static inline int64_t piece_origin(const Piece *p, int64_t i)
{
    return p->origin ? p->origin[i] : p->base + i;
}

/* A piece being written. Room is made as it grows; the old room stays in the
 * arena until that is rewound. */
typedef struct {
    PieceSpace *space;
    char       *text;
    int64_t    *origin;
    int64_t     n, room;
} PieceWriter;

/* room: a guess of the length. */
MUST_USE Status piece_write_begin(PieceWriter *w, PieceSpace *space, int64_t room);
/* Adds text[0..n), all of it from that byte of the input. */
MUST_USE Status piece_write(PieceWriter *w, const char *text, int64_t n, int64_t origin);
/* Adds bytes [from, to) of p with their origin. */
MUST_USE Status piece_copy(PieceWriter *w, const Piece *p, int64_t from, int64_t to);
/* What was written in place of p. */
Piece piece_written(const PieceWriter *w, const Piece *p);

/* Each maximal ill-formed part becomes U+FFFD; a valid piece stays as it is. */
MUST_USE Status piece_repair(Piece *p, PieceSpace *space);

#endif
