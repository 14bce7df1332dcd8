/* png.h - a Canvas as the bytes of a PNG file. */
#ifndef DQ_DRAW_PNG_H
#define DQ_DRAW_PNG_H

#include "reports/draw/canvas.h"

typedef struct {
    unsigned char *data;  // the arena's
    size_t         size;
} PngImage;

/* RGB, 8 bits, marked as 192 pixels an inch (shown at half its size). The same
 * canvas gives the same bytes. ERR_MEMORY. */
MUST_USE Status png_encode(PngImage *out, Arena *a, const Canvas *c);

#endif
