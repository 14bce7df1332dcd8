/* windows_cut.h - where the windows of each convention lie in a text's tokens. */
#ifndef DQ_WINDOWS_CUT_H
#define DQ_WINDOWS_CUT_H

#include "analysis/windows.h"

/* A text to be cut. */
typedef struct {
    int64_t n;        // its tokens
    int64_t context, stride;
    int64_t bos;      // 1: there is one to put in front, else 0
} Cut;

/* One window: BOS if `bos`, then tokens first .. end of the text. Tokens score_first ..
 * score_end are predicted; the last of them may be the one behind the window. */
typedef struct {
    bool    bos;
    int64_t first, end, score_first, score_end;
} Piece;

typedef struct {
    const char *name;
    int64_t     min_context;
    bool        any_prefix;   // BOS, else EOS, whether or not the tokenizer adds it
    int64_t   (*count)(const Cut *c);   // windows
    Piece     (*piece)(const Cut *c, int64_t i);
    char     *(*sentence)(Arena *a, const Cut *c);   // NULL without memory
} Convention;

extern const Convention CONVENTIONS[N_WINDOW_CONVENTIONS];

#endif
