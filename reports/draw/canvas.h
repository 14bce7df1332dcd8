/* canvas.h - an RGB picture and the marks made on it. x goes right, y down, in
 * pixels; what lies outside is cut off. Pictures are drawn at twice the size
 * they are shown in, so that text is sharp. */
#ifndef DQ_CANVAS_H
#define DQ_CANVAS_H

#include <stdint.h>

#include "kernels/arena.h"

typedef struct {
    uint8_t r, g, b;
} Color;

typedef struct {
    int      width, height;
    uint8_t *rgb;            // [height, width, 3], the arena's
} Canvas;

/* At most 32768 pixels a side. ERR_RANGE, ERR_MEMORY. */
MUST_USE Status canvas_init(Canvas *c, Arena *a, int width, int height, Color paper);
void canvas_rect(Canvas *c, int x, int y, int width, int height, Color color);
/* Mixes color over what is there; cover in 0..255. */
void canvas_blend(Canvas *c, int x, int y, Color color, int cover);
/* Smooth edges. The ends are round. */
void canvas_line(Canvas *c, double x0, double y0, double x1, double y1, double width,
                 Color color);
void canvas_disc(Canvas *c, double x, double y, double radius, Color color);
/* Outline just outside the rectangle. */
void canvas_frame(Canvas *c, int x, int y, int width, int height, int thick, Color color);
/* (0,0,0) outside. */
Color canvas_at(const Canvas *c, int x, int y);

#endif
