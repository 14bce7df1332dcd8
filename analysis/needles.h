/* needles.h - multi-needle retrieval (scoring of arXiv 2410.05258, section 3.3): N
 * sentences that give a city a magic number stand in filler text, R cities are asked
 * for; exact match, and how attention is shared out. */
#ifndef DQ_NEEDLES_H
#define DQ_NEEDLES_H

#include "analysis/retrieval.h"

enum { NEEDLES_DEPTHS = 5 };   // of the first answer needle: 0 25 50 75 100 %

typedef struct {
    int64_t     needles;    // N >= R
    int64_t     asked;      // R >= 1
    int64_t     samples;    // a depth; 50 in the paper
    int64_t     context;    // tokens of the whole sequence, question and answer included
    uint64_t    seed;
    const char *filler;     // text that the needles stand in, [n_filler]
    size_t      n_filler;
    bool        no_bos;
} NeedleOptions;

typedef struct {
    NeedleOptions  o;
    int64_t        n;        // episodes: depths * samples
    const uint8_t *depth;    // [n]
    Retrieval      episodes; // with spans; retrieval_run scores them
    char          *jsonl;    // the episodes as retrieval.h reads them: to keep a set
} Needles;

/* The same options and seed give the same episodes for every model with this tokenizer.
 * ERR_RANGE where they do not fit the context or the filler is too short. */
MUST_USE Status needles_make(Needles *nd, Arena *a, Tokenizer *t, const NeedleOptions *o);

typedef struct {
    TaskScore all, depth[NEEDLES_DEPTHS];
    /* Share of attention (of the rows that predict the answer) on the answer's needle and
     * on everything else; differential heads: of the difference, by absolute value. */
    double *span, *rest;     // [n_layers, NEEDLES_DEPTHS]
} NeedleScore;

MUST_USE Status needles_run(NeedleScore *out, Arena *a, const Needles *nd, Scorer *sc);
/* needles/... series: accuracy [depth], stderr [depth], span, rest [layer,depth]. */
MUST_USE Status needles_series(const NeedleScore *s, const Needles *nd, SeriesSet *set);

#endif
