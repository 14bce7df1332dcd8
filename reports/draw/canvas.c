/* canvas.c - filled rectangles, and lines by their distance to each pixel. */
#include "reports/draw/canvas.h"

#include <math.h>

enum { MAX_SIDE = 32768 };

Status canvas_init(Canvas *c, Arena *a, int width, int height, Color paper)
{
    if (width < 1 || height < 1 || width > MAX_SIDE || height > MAX_SIDE)
        FAIL(ERR_RANGE, "picture of %d x %d pixels, expected 1 to %d a side", width, height,
             MAX_SIDE);
    *c = (Canvas){.width = width, .height = height};
    c->rgb = arena_raw(a, (int64_t)width * height, 3);
    if (!c->rgb)
        FAIL(ERR_MEMORY, "out of memory: picture of %d x %d pixels", width, height);
    canvas_rect(c, 0, 0, width, height, paper);
    return OK;
}

static int clamp(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

void canvas_rect(Canvas *c, int x, int y, int width, int height, Color color)
{
    int x0 = clamp(x, 0, c->width), x1 = clamp(x + width, 0, c->width);
    int y0 = clamp(y, 0, c->height), y1 = clamp(y + height, 0, c->height);
    for (int j = y0; j < y1; j++) {
        uint8_t *p = c->rgb + ((int64_t)j * c->width + x0) * 3;
        for (int i = x0; i < x1; i++, p += 3) {
            p[0] = color.r;
            p[1] = color.g;
            p[2] = color.b;
        }
    }
}

static uint8_t mix(uint8_t under, uint8_t over, int cover)
{
    return (uint8_t)((under * (255 - cover) + over * cover + 127) / 255);
}

void canvas_blend(Canvas *c, int x, int y, Color color, int cover)
{
    if (x < 0 || y < 0 || x >= c->width || y >= c->height)
        return;
    uint8_t *p = c->rgb + ((int64_t)y * c->width + x) * 3;
    p[0] = mix(p[0], color.r, cover);
    p[1] = mix(p[1], color.g, cover);
    p[2] = mix(p[2], color.b, cover);
}

/* Distance of (x,y) to the segment. */
static double distance(double x, double y, double x0, double y0, double x1, double y1)
{
    double dx = x1 - x0, dy = y1 - y0, square = dx * dx + dy * dy;
    double t = square > 0 ? ((x - x0) * dx + (y - y0) * dy) / square : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypot(x - x0 - t * dx, y - y0 - t * dy);
}

void canvas_line(Canvas *c, double x0, double y0, double x1, double y1, double width,
                 Color color)
{
    double reach = width / 2 + 1;
    int left = clamp((int)floor(fmin(x0, x1) - reach), 0, c->width);
    int right = clamp((int)ceil(fmax(x0, x1) + reach), 0, c->width);
    int top = clamp((int)floor(fmin(y0, y1) - reach), 0, c->height);
    int bottom = clamp((int)ceil(fmax(y0, y1) + reach), 0, c->height);
    for (int y = top; y < bottom; y++)
        for (int x = left; x < right; x++) {
            double d = distance(x + 0.5, y + 0.5, x0, y0, x1, y1);
            double cover = width / 2 + 0.5 - d;
            if (cover > 0)
                canvas_blend(c, x, y, color, (int)(255 * fmin(1, cover) + 0.5));
        }
}

void canvas_disc(Canvas *c, double x, double y, double radius, Color color)
{
    canvas_line(c, x, y, x, y, 2 * radius, color);
}

void canvas_frame(Canvas *c, int x, int y, int width, int height, int thick, Color color)
{
    canvas_rect(c, x - thick, y - thick, width + 2 * thick, thick, color);
    canvas_rect(c, x - thick, y + height, width + 2 * thick, thick, color);
    canvas_rect(c, x - thick, y, thick, height, color);
    canvas_rect(c, x + width, y, thick, height, color);
}

Color canvas_at(const Canvas *c, int x, int y)
{
    if (x < 0 || y < 0 || x >= c->width || y >= c->height)
        return (Color){0, 0, 0};
    const uint8_t *p = c->rgb + ((int64_t)y * c->width + x) * 3;
    return (Color){p[0], p[1], p[2]};
}
