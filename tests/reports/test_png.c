/* test_png.c - canvases, decoded again by libpng. */
#include "reports/draw/png.h"

#include <math.h>
#include <string.h>

#include <png.h>

#include "tests/check.h"

static const Color BLUE = {0, 0, 255}, RED = {255, 0, 0};

/* A red F on blue: flips, turns and swapped channels all show. 50 x 70. */
static Status draw_f(Canvas *c, Arena *a)
{
    TRY(canvas_init(c, a, 50, 70, BLUE));
    canvas_rect(c, 10, 10, 8, 50, RED);
    canvas_rect(c, 10, 10, 30, 8, RED);
    canvas_rect(c, 10, 30, 20, 8, RED);
    return OK;
}

static bool decode(Arena *a, const PngImage *in, Canvas *out)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, in->data, in->size))
        return false;
    image.format = PNG_FORMAT_RGB;
    *out = (Canvas){(int)image.width, (int)image.height, NULL};
    out->rgb = arena_alloc(a, (int64_t)PNG_IMAGE_SIZE(image), 1);
    return out->rgb && png_image_finish_read(&image, NULL, out->rgb, 0, NULL);
}

static bool is(const Canvas *c, int x, int y, Color want)
{
    Color have = canvas_at(c, x, y);
    return have.r == want.r && have.g == want.g && have.b == want.b;
}

TEST(an_f_stays_an_f)
{
    Arena a = {0};
    Canvas c, back;
    PngImage png, again;
    T_STATUS_OK(draw_f(&c, &a));
    T_STATUS_OK(png_encode(&png, &a, &c));
    T_OK(decode(&a, &png, &back));
    T_OK(back.width == 50 && back.height == 70);
    T_OK(memcmp(back.rgb, c.rgb, 50 * 70 * 3) == 0);
    T_OK(is(&back, 12, 12, RED) && is(&back, 38, 12, RED) && is(&back, 12, 58, RED));
    T_OK(is(&back, 28, 34, RED) && is(&back, 38, 34, BLUE) && is(&back, 38, 58, BLUE));
    T_STATUS_OK(png_encode(&again, &a, &c));
    T_OK(again.size == png.size && memcmp(again.data, png.data, png.size) == 0);
    arena_close(&a);
}

TEST(rectangles_are_cut_at_the_edges)
{
    Arena a = {0};
    Canvas c;
    T_STATUS_OK(canvas_init(&c, &a, 5, 4, BLUE));
    canvas_rect(&c, -3, -2, 5, 3, RED);   // covers (0,0) and (1,0)
    canvas_rect(&c, 4, 3, 100, 100, RED);
    canvas_rect(&c, 7, 1, 2, 2, RED);
    int n = 0;
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 5; x++)
            n += is(&c, x, y, RED);
    T_OK(n == 3 && is(&c, 1, 0, RED) && is(&c, 4, 3, RED));
    arena_close(&a);
}

TEST(lines_have_their_width_and_place)
{
    Arena a = {0};
    Canvas c;
    T_STATUS_OK(canvas_init(&c, &a, 40, 20, (Color){255, 255, 255}));
    canvas_line(&c, 5, 10, 35, 10, 4, (Color){0, 0, 0});
    double dark = 0;
    for (int y = 0; y < 20; y++)
        dark += 1 - canvas_at(&c, 20, y).r / 255.0;
    T_NEAR(dark, 4, 0.02);  // across the line, in pixels
    T_OK(canvas_at(&c, 20, 9).r == 0 && canvas_at(&c, 20, 13).r == 255);
    T_OK(canvas_at(&c, 1, 10).r == 255 && canvas_at(&c, 38, 10).r == 255);
    canvas_line(&c, -1000, -1000, -900, -900, 4, RED);  // outside: nothing
    canvas_disc(&c, 20, 10, 1e6, BLUE);                 // everything
    T_OK(is(&c, 0, 0, BLUE) && is(&c, 39, 19, BLUE));
    arena_close(&a);
}

TEST(absurd_sizes_and_no_memory)
{
    Arena a = {0};
    Canvas c;
    PngImage png;
    T_FAILS(canvas_init(&c, &a, 0, 10, BLUE), ERR_RANGE, "0 x 10");
    T_FAILS(canvas_init(&c, &a, 10, 40000, BLUE), ERR_RANGE, "32768");
    T_STATUS_OK(draw_f(&c, &a));
    arena_fail_at(1);
    Status s = png_encode(&png, &a, &c);
    arena_fail_at(0);
    T_OK(s == ERR_MEMORY && strstr(status_text(), "50 x 70"));
    arena_fail_at(1);
    s = canvas_init(&c, &a, 10, 10, BLUE);
    arena_fail_at(0);
    T_OK(s == ERR_MEMORY);
    arena_close(&a);
}
