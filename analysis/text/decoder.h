/* decoder.h - spellings of tokens back to text. */
#ifndef DQ_TEXT_DECODER_H
#define DQ_TEXT_DECODER_H

#include "analysis/text/pattern.h"

enum { DECODER_MAX = 16 };

typedef struct {
    enum {
        DECODE_BYTES,      // bytemap's characters to bytes
        DECODE_REPLACE,    // pattern -> text
        DECODE_FALLBACK,   // <0xXX> to bytes
        DECODE_FUSE,       // all spellings to one
        DECODE_STRIP,      // up to start and stop times text off the ends
        DECODE_METASPACE   // text -> space; none at all in the first token if start
    } kind;
    const Pattern *pattern;
    const char    *text;
    int64_t        start, stop;
} DecodeStep;

/* n 0: no decoder, spellings are joined with spaces between them. */
typedef struct {
    int        n;
    DecodeStep step[DECODER_MAX];
} Decoder;

/* spelling[0..n) as one text with a closing 0, in space's arena with all that
 * it takes on the way; its length to *length. */
MUST_USE Status decoder_run(const Decoder *d, PieceSpace *space, const Piece *spelling,
                            int64_t n, char **text, int64_t *length);

#endif
