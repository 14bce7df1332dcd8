/* lineplot.h - lines with error bars: panels in a row that share one legend and
 * the range of y. */
#ifndef DQ_LINEPLOT_H
#define DQ_LINEPLOT_H

#include "reports/draw/font.h"

typedef struct {
    const char   *name;      // in the legend; the same name, the same colour
    int           color;     // colors_line
    int           n;
    const double *x, *y;     // [n]; a NaN or, on a log axis, y <= 0 breaks the line
    const double *error;     // [n] half length of the error bar, NULL: none
    bool          marks;     // a disc at every point
} PlotLine;

typedef struct {
    const char     *title;   // NULL: none
    int             n_lines;
    const PlotLine *lines;
} PlotPanel;

typedef struct {
    const char        *title, *subtitle;   // subtitle may be NULL
    const char        *x_label, *y_label;
    bool               x_log, y_log;
    int                n_steps;            // > 0: x counts named places 0..n_steps-1
    const char *const *steps;
    double             y_least, y_most;    // limits the axis never passes; NaN: none
    double             y_span;             // the axis covers at least this (linear)
    int                n_panels, columns;
    int                height;             // of a panel, in pixels; 0: the usual
    const PlotPanel   *panels;
} LinePlot;

/* ERR_RANGE where there is no point to draw. */
MUST_USE Status lineplot_draw(Canvas *out, Arena *a, const Font *font, const LinePlot *p);

#endif
