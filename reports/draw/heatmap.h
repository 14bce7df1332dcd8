/* heatmap.h - matrices as pictures: a grid of panels under one title that share
 * one colour scale and one colour bar. */
#ifndef DQ_HEATMAP_H
#define DQ_HEATMAP_H

#include "reports/draw/colors.h"
#include "reports/draw/font.h"

typedef struct {
    const char        *title;
    int64_t            rows, cols;   // both >= 1; row 0 is at the top
    const float       *at;           // [rows, cols]
    const char *const *names;        // of rows and of columns, [rows] == [cols];
                                     // NULL: numbers. Numbers too where names
                                     // do not fit.
    const uint8_t     *absent;       // [rows] not 0: there is no such row; NULL: all are there
} HeatPanel;

typedef struct {
    const char      *title, *subtitle;     // subtitle may be NULL
    const char      *x_label, *y_label, *value_label;
    ColorScale       scale;
    int              columns;              // panels in a row
    bool             square;               // cells as high as wide
    bool             causal;               // columns right of the diagonal do not exist
    const char      *zero_label;           // what exact zeros mean (causal: what those
                                           // columns are), or NULL
    const char      *absent_label;         // what rows are that are absent
    int              n_panels;
    const HeatPanel *panels;
} Heatmap;

/* A canvas as large as the figure needs, about 2000 pixels wide at most. A cell
 * is a whole number of pixels, two or more; where a matrix has too many columns
 * or rows for that, neighbours are joined and the largest magnitude stands for
 * them (anything not finite goes first), so that an outlier never vanishes. */
MUST_USE Status heatmap_draw(Canvas *out, Arena *a, const Font *font, const Heatmap *h);

/* The joining by itself: out [ceil(rows/ky), ceil(cols/kx)]. */
void heatmap_reduce(float *out, const float *x, int64_t rows, int64_t cols, int64_t ky,
                    int64_t kx);

#endif
