/* analyze.h - the instrumented run: a text through a model with every record on,
 * into a SeriesSet. */
#ifndef DQ_ANALYZE_H
#define DQ_ANALYZE_H

#include "analysis/perplexity.h"
#include "analysis/retrieval.h"

enum { MAPS_NONE = -2, MAPS_LARGEST = -1 };  // for maps_layer

typedef struct {
    bool             record;        // false: the same pass without a probe
    bool             no_loss;       // leave the head and the perplexity out
    RunQuant       quant;         // {16} for none
    int64_t          batch_tokens;  // 0: SCORE_BATCH_TOKENS
    const char      *text_name;     // the text's files, kept as an attribute; or NULL
    /* Whole maps of one layer for one passage, maps/...: the layer with the
     * largest logit (the first layer, where nothing is recorded), or none. */
    int64_t          maps_layer;
    const int32_t   *passage;       // [n_passage] ids, or NULL: the first window
    int64_t          n_passage;
    int64_t          maps_positions;  // most tokens taken; 0: ANALYZE_MAPS
    /* Marked episodes: attention/span is measured on these, everything else on
     * the text. NULL: attention/span has no rows. */
    const Retrieval *marked;
    uint8_t         *marked_correct;  // [marked->n] out: which were answered right; or NULL
    int64_t         *marked_nan;      // out: Scorer's n_nan of them; or NULL
    const Progress  *progress;      // or NULL
} AnalyzeOptions;

enum { ANALYZE_MAPS = 64 };

/* Adds the attributes of the model and the run, the probe's figures, the maps,
 * and (the pass scores as well, if it has to) attributes nll and perplexity; *p without a
 * loss has no tokens and is NaN. All that the set
 * keeps lies in its own arena, as does p->window_nll: model and windows may go. t
 * may be NULL: labels of the maps are then numbers. ERR_RANGE for a layer that is
 * not there. */
MUST_USE Status analyze_run(SeriesSet *set, Perplexity *p, Model *m, Tokenizer *t,
                            const Windows *w, const AnalyzeOptions *o);

/* Only the attributes of the model and, where w is not NULL, of the run over it. */
MUST_USE Status analyze_describe(SeriesSet *set, const Model *m, const Windows *w,
                                 const AnalyzeOptions *o);

#endif
