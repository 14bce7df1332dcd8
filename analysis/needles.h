/* needles.h - multi-needle retrieval (arXiv 2410.05258, section 3.3): N sentences that
 * give a city a magic number stand in filler text, R of the cities are asked for; exact
 * match, and how attention is shared out.
 *
 * Text of an episode: sentences of the filler from a random one on, as they stand, with
 * the needles between them; the question; "The magic number for Lisbon is". Then the
 * answer, " 48179."; with R > 1 followed by " The magic number for Rome is 3050112." and
 * so on, where only the numbers (with their full stops, or a number that goes on would
 * pass) are asked and the words between are given: exact match of all R numbers under
 * greedy decoding, the beginning of each answer being told.
 * The first needle asked for stands at its depth: the share of the filler's tokens in
 * front of it, to the nearest sentence; at 0 % it comes first of all, at 100 % last. */
#ifndef DQ_NEEDLES_H
#define DQ_NEEDLES_H

#include "analysis/retrieval.h"

enum { NEEDLES_DEPTHS = 5, NEEDLES_CITIES = 128 };
extern const int32_t NEEDLES_DEPTH[NEEDLES_DEPTHS];   // 0 25 50 75 100, of the first asked

typedef enum {
    NEEDLES_QUESTION,    // "The magic number for Rome is 48179.", 5 to 7 digits, then the
                         //   question "What is the magic number for Rome?"
    NEEDLES_STATEMENT,   // "The magic number of Rome is 4817.", 4 digits, no question:
                         //   what the example pair was trained on
    N_NEEDLE_FORMS
} NeedleForm;
const char *needles_form_name(NeedleForm f);   // "question", "statement"

typedef struct {
    int64_t     needles;      // N, R .. NEEDLES_CITIES
    int64_t     asked;        // R >= 1
    int64_t     samples;      // a depth; 50 in the paper
    int64_t     context;      // tokens of the whole sequence: BOS, question, answer included
    uint64_t    seed;
    NeedleForm  form;
    const char *filler;       // text that the needles stand in, UTF-8, [n_filler]
    size_t      n_filler;
    const char *filler_name;  // its file's, for messages; or NULL
    bool        no_bos;
} NeedleOptions;

typedef struct {
    NeedleOptions  o;        // its texts are the caller's and not looked at again
    const char    *name;     // "needles-n6r2"
    int64_t        n;        // episodes: NEEDLES_DEPTHS * samples, depth by depth
    const uint8_t *depth;    // [n] index of NEEDLES_DEPTH
    /* With spans (the first asked needle, all of its sentence) and share_rows (those
     * that predict the first answer); retrieval_run scores them as well. */
    Retrieval      episodes;
    char          *jsonl;    // the episodes as retrieval_load reads them: to keep a set
} Needles;

/* The same options and filler give the same episodes with every model that has this
 * tokenizer, on every machine: as many sentences as the context holds, one more would be
 * too long. ERR_RANGE for numbers out of range, a context too small for the needles and a
 * sentence, a filler of fewer tokens than the context
 * or of white space alone; ERR_FORMAT for one that is no UTF-8
 * or holds a zero byte. */
MUST_USE Status needles_make(Needles *nd, Arena *a, Tokenizer *t, const NeedleOptions *o);

/* Attention of the rows that predict the first answer, summed over keys: shares of a
 * head's sum of |A1 - lambda A2| (of A1, which is 1, where there is one map), mean over
 * heads. span + rest = 1. */
typedef struct {
    TaskScore all, depth[NEEDLES_DEPTHS];
    int64_t   n_layers, n_maps;
    uint8_t  *correct;       // [n]
    int64_t   n_nan;         // Scorer's
    double   *span;          // [n_layers, NEEDLES_DEPTHS] on the first asked needle
    double   *rest;          // the same shape: on everything else, the noise
    double   *first;         // and of the rest, what lies on position 0, where heads put
                             //   attention that they have no use for
    double   *map_span;      // [n_layers, n_maps, NEEDLES_DEPTHS] of each map alone
} NeedleScore;

/* Arrays from a. sc's probe is not used, and is what it was afterwards. */
MUST_USE Status needles_run(NeedleScore *out, Arena *a, const Needles *nd, Scorer *sc);
/* needles/n6_r2/... series: accuracy, stderr [depth]; correct [depth,sample]; nan; span, rest,
 * first [layer,depth]; map_span [layer,map,depth]; and the coordinate depth. A set takes
 * several N and R of as many samples. */
MUST_USE Status needles_series(const NeedleScore *s, const Needles *nd, SeriesSet *set);
/* correct [n] in a and n_nan, from a set that needles_series wrote to; ERR_FORMAT where it
 * did not. */
MUST_USE Status needles_correct(uint8_t **correct, int64_t *n_nan, Arena *a, const Needles *nd,
                                const SeriesSet *set);

#endif
