/* nfc.h - Unicode normalization form C, as the library has it.
 * The library's table of combining marks is older than today's: marks it does
 * not know are left where they stand. */
#ifndef DQ_TEXT_NFC_H
#define DQ_TEXT_NFC_H

#include "analysis/text/piece.h"
#include "analysis/text/utf8.h"

/* Composes p; a piece that is in form C stays as it is. What a changed
 * character came from is known to the cluster (base and marks), not better. */
MUST_USE Status nfc_apply(Piece *p, PieceSpace *space);

#endif
