/* axes.h - what the kinds of pictures have in common: sizes of text, titles,
 * ticks and labels around a rectangle. */
#ifndef DQ_AXES_H
#define DQ_AXES_H

#include "reports/draw/font.h"
#include "reports/draw/ticks.h"

/* Pixels at twice the size shown. */
enum {
    AXES_MARGIN = 36, AXES_TICK_SIZE = 22, AXES_LABEL_SIZE = 24, AXES_PANEL_SIZE = 26,
    AXES_TITLE_SIZE = 34, AXES_TICK = 9, AXES_GAP = 12
};

extern const Color AXES_PAPER, AXES_INK, AXES_SOFT, AXES_GRID;

typedef struct {
    int x, y, width, height;
} Box;

TextStyle axes_style(int size, Color color, TextAlign align);

/* Height that axes_titles takes from the top of the picture. */
int  axes_titles_height(const char *subtitle);
/* Width of the wider of both. */
int  axes_titles_width(const Font *f, const char *title, const char *subtitle);
void axes_titles(const Font *f, Canvas *c, const char *title, const char *subtitle);

/* Widest text of the ticks. */
int  axes_widest(const Font *f, const Ticks *t);
/* place[i]: pixel of tick i from the box's left (top for y). Marks outside of
 * the box, at its lower and left side (right side with on_right). */
void axes_x_ticks(const Font *f, Canvas *c, Box box, const Ticks *t, const double *place);
void axes_y_ticks(const Font *f, Canvas *c, Box box, const Ticks *t, const double *place,
                  bool on_right);

#endif
