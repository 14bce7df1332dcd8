/* font.h - text on a Canvas, in DejaVu Sans through FreeType. The handle owns
 * FreeType's objects; the typefaces are part of the program. */
#ifndef DQ_FONT_H
#define DQ_FONT_H

#include <stdbool.h>

#include "reports/draw/canvas.h"

typedef struct {
    void *library;
    void *face[2];   // regular, bold
} Font;

typedef enum { TEXT_LEFT, TEXT_CENTER, TEXT_RIGHT } TextAlign;

typedef struct {
    int       size;      // pixels an em
    bool      bold;
    bool      vertical;  // reads upwards
    TextAlign align;     // which end of the text is at (x,y)
    Color     color;
} TextStyle;

MUST_USE Status font_open(Font *f);
void            font_close(Font *f);  // zeroed or twice is fine

/* Pixels from the text's start to its end. */
int  font_width(const Font *f, const char *text, TextStyle style);
/* (x,y) is on the baseline. What the typeface lacks is drawn as its box. */
void font_draw(const Font *f, Canvas *c, int x, int y, const char *text, TextStyle style);

#endif
