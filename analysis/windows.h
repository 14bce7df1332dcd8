/* windows.h - cuts a text into windows of tokens, without overlap.
 *
 * The convention: every window begins with BOS where the tokenizer adds one
 * (tokenizer_adds_bos); BOS replaces nothing, counts as one of the context's
 * tokens and is not scored. All other tokens but those that nothing precedes
 * are scored. The last window may be short; a text shorter than the context is
 * one short window. */
#ifndef DQ_WINDOWS_H
#define DQ_WINDOWS_H

#include "analysis/score.h"
#include "analysis/tokenizer.h"

typedef struct {
    int64_t context;       // tokens of a window, BOS included; >= 2
    int64_t max_tokens;    // of the text, from its start; 0: all
    bool    no_bos;        // leave BOS out even where the tokenizer adds it
} WindowOptions;

typedef struct {
    Sequences   seq;
    int64_t     context;
    int64_t     n_text;      // tokens of the text, BOS not counted
    int64_t     n_tokens;    // rows of all windows, BOS counted
    int64_t     n_scored;    // rows with a target
    int32_t     bos;         // that begins each window; -1: none
    const char *convention;  // one sentence, for reports
} Windows;

/* name: the text's, for errors. ERR_RANGE for an empty text, one of a single
 * token, or a context below 2. */
MUST_USE Status windows_from_text(Windows *w, Arena *a, Tokenizer *t, const char *name,
                                  const char *text, size_t n, const WindowOptions *o);
/* ids[n] without special tokens; bos -1: none (o->no_bos has no effect then). */
MUST_USE Status windows_from_ids(Windows *w, Arena *a, const char *name, const int32_t *ids,
                                 int64_t n, int32_t bos, const WindowOptions *o);

/* Windows first .. first + n of w as windows of their own. CHECKs that w has them. */
MUST_USE Status windows_slice(Windows *out, Arena *a, const Windows *w, int64_t first,
                              int64_t n);

/* The BOS that the convention puts in front: -1 where there is none. */
int32_t windows_bos(const Tokenizer *t, bool no_bos);

#endif
