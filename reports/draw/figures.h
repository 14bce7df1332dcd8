/* figures.h - the pictures of a study: which series becomes which picture. */
#ifndef DQ_FIGURES_H
#define DQ_FIGURES_H

#include "analysis/series.h"
#include "reports/draw/png.h"

enum { FIGURES_MAX = 12, FIGURES_MODELS = 8 };

typedef struct {
    const char *file;       // "logits-heads.png"
    const char *caption;    // plain words: what it shows, how to read it
    const char *alt;        // for those who cannot see it
    int         width, height;
    PngImage    png;
} Figure;

typedef struct {
    int    n;
    Figure at[FIGURES_MAX];
} Figures;

/* How the heatmaps' colours follow magnitude; AUTO: what suits each figure. */
typedef enum { COLOR_AUTO, COLOR_LINEAR, COLOR_LOG } ColorChoice;

/* All pictures the sets have figures for, in the order of the page. map_head:
 * the head whose maps are shown, -1: the one where map 2 takes most away. */
MUST_USE Status figures_draw(Figures *f, Arena *a, const SeriesSet *sets, int n_sets,
                             int64_t map_head, ColorChoice color);
/* NULL where it was not drawn. */
const Figure *figures_find(const Figures *f, const char *file);

/* The head that figures_draw takes for a set; 0 where nothing tells. */
int64_t figures_map_head(const SeriesSet *set, int64_t map_head);

#endif
