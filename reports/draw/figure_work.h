/* figure_work.h - what the drawing of the figures shares. Private to figures.c
 * and figure_curves.c. */
#ifndef DQ_FIGURE_WORK_H
#define DQ_FIGURE_WORK_H

#include "reports/draw/figures.h"
#include "reports/draw/font.h"

typedef struct {
    Figures         *out;
    Arena           *arena;     // of what is kept
    Arena            scratch;   // emptied after every figure
    Font             font;
    const SeriesSet *sets;
    int              n_sets;
    ColorChoice      color;
} FigureWork;

/* Encodes the canvas into the list and empties the scratch arena. file, alt and
 * caption are kept, not copied. */
MUST_USE Status figure_add(FigureWork *w, const Canvas *c, const char *file, const char *alt,
                           const char *caption);

/* Share of values above a size; accuracy and perplexity over logit bits. Each
 * draws nothing where no set has the series. */
MUST_USE Status figure_tails(FigureWork *w);
MUST_USE Status figure_accuracy(FigureWork *w);
MUST_USE Status figure_perplexity(FigureWork *w);

#endif
