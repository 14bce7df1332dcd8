/* colors.h - from a number to a colour, and what the colour bar needs.
 * Zero on a logarithmic scale and what is not finite have colours of their own,
 * that no number gets. */
#ifndef DQ_COLORS_H
#define DQ_COLORS_H

#include <stdbool.h>

#include "reports/draw/canvas.h"
#include "reports/draw/ticks.h"

typedef enum {
    COLORS_LINEAR,      // 0..hi, viridis
    COLORS_LOG,         // lo..hi, viridis; magnitudes below lo look like lo
    COLORS_SIGNED,      // -hi..hi, blue - white - red
    COLORS_SIGNED_LOG   // the same, each side logarithmic from lo; within: white
} ColorKind;

typedef struct {
    ColorKind kind;
    double    lo, hi;   // lo > 0 where logarithmic; hi > lo
} ColorScale;

extern const Color COLOR_ZERO, COLOR_NOT_FINITE;

/* Place on the colour bar in [0,1], bottom to top. NaN for what has its own
 * colour. */
double colors_place(const ColorScale *s, double value);
Color  colors_of(const ColorScale *s, double value);
Color  colors_ramp(const ColorScale *s, double place);
void   colors_ticks(const ColorScale *s, Ticks *t, int most);

/* Widens a range by the finite values of x[0..n); start from {0}: smallest
 * magnitude above zero and largest magnitude. */
typedef struct {
    double least, most;
    bool   negative, zero, not_finite;
} ColorRange;
void colors_range(ColorRange *r, const float *x, int64_t n);
/* A scale for that range: signed where there are negative values, logarithmic
 * where asked or, with choose, where the magnitudes span more than 30-fold. At
 * most `decades` of a logarithmic scale are told apart. */
ColorScale colors_fit(const ColorRange *r, bool log_scale, bool choose, double decades);

/* Colour i of lines in a plot: told apart by the colour-blind too. */
Color colors_line(int i);

#endif
