/* windows.h - cuts a text into windows of tokens, by the conventions of the field.
 *
 * The default: windows without overlap, each beginning with BOS where the tokenizer
 * adds one (tokenizer_adds_bos); BOS replaces nothing, counts as one of the
 * context's tokens and is not scored. All other tokens but those that nothing
 * precedes are scored. The last window may be short; a text shorter than the
 * context is one short window. */
#ifndef DQ_WINDOWS_H
#define DQ_WINDOWS_H

#include "analysis/score.h"
#include "analysis/tokenizer.h"

/* With C tokens of context and BOS (or none) put once before the text:
 *   disjoint   as above
 *   strided    a window every `stride` tokens; each scores what no window before it
 *              did: its last `stride` tokens, the first all but its first (the
 *              perplexity guide of transformers; its average weighs each window by a
 *              token too few, ours is over tokens)
 *   llama.cpp  whole windows, the first token of each replaced by BOS where there is
 *              one; only tokens C/2 + 1 .. C - 1 are scored
 *   lm-eval    rolling windows of lm-evaluation-harness: the first is conditioned on
 *              BOS, else EOS, whether or not the tokenizer adds it; each later one on
 *              the token before it, the last on as many as fit. A BOS that the tokenizer
 *              adds comes again as the text's first token and is predicted, as there
 *   gptq       whole windows, the first token of each not scored (GPTQ, AWQ, SmoothQuant) */
typedef enum { WINDOWS_DISJOINT, WINDOWS_STRIDED, WINDOWS_LLAMA_CPP, WINDOWS_LM_EVAL,
               WINDOWS_GPTQ, N_WINDOW_CONVENTIONS } WindowConvention;

typedef struct {
    int64_t context;       // tokens of a window, BOS included; >= 2
    int64_t max_tokens;    // of the text, from its start; 0: all
    bool    no_bos;        // leave BOS out even where the tokenizer adds it
    WindowConvention convention;
    int64_t stride;        // strided only: 1 .. context; 0: half of the context
} WindowOptions;

typedef struct {
    Sequences   seq;
    int64_t     context;
    int64_t     n_text;      // tokens of the text, BOS not counted
    int64_t     n_tokens;    // rows of all windows, BOS counted
    int64_t     n_scored;    // rows with a target
    int32_t     bos;         // that begins each window, or the text; -1: none
    const char *convention;  // one sentence, for reports
    int64_t     n_bytes;     // of the text, UTF-8; 0 where not every token of it is scored
                             //   or only tokens are known
    int64_t     n_words;     // pieces that whitespace parts, empty ones at the ends
                             //   counted, as Python's re.split(r"\s+") has them; or 0
} Windows;

/* name: the text's, for errors. ERR_RANGE for an empty text, one of a single token,
 * a context below 2 (3 for llama.cpp), a stride outside 1 .. context, a text without
 * one whole window where only those count, and lm-eval without BOS and EOS. */
MUST_USE Status windows_from_text(Windows *w, Arena *a, Tokenizer *t, const char *name,
                                  const char *text, size_t n, const WindowOptions *o);
/* ids[n] without special tokens; bos: of windows_prefix, or -1: none (o->no_bos has no
 * effect then). n_bytes and n_words are 0. */
MUST_USE Status windows_from_ids(Windows *w, Arena *a, const char *name, const int32_t *ids,
                                 int64_t n, int32_t bos, const WindowOptions *o);

/* Windows first .. first + n of w as windows of their own; n_text counts a token as often
 * as it stands in them. CHECKs that w has them. */
MUST_USE Status windows_slice(Windows *out, Arena *a, const Windows *w, int64_t first,
                              int64_t n);

/* The BOS that the default convention puts in front: -1 where there is none. */
int32_t windows_bos(const Tokenizer *t, bool no_bos);
/* The token that o's convention puts in front: -1 where there is none. */
int32_t windows_prefix(const Tokenizer *t, const WindowOptions *o);

/* "disjoint", "strided", "llama.cpp", "lm-eval", "gptq" */
const char *window_convention_name(WindowConvention c);
/* ERR_USAGE lists the names. */
MUST_USE Status window_convention_parse(WindowConvention *c, const char *name);

#endif
