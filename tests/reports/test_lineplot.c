/* test_lineplot.c - lines, gaps, error bars. */
#include "reports/draw/lineplot.h"

#include <math.h>
#include <string.h>

#include "reports/draw/colors.h"
#include "tests/check.h"

enum { N = 4 };

static int count_color(const Canvas *c, Color want)
{
    int n = 0;
    for (int y = 0; y < c->height; y++)
        for (int x = 0; x < c->width; x++) {
            Color have = canvas_at(c, x, y);
            n += have.r == want.r && have.g == want.g && have.b == want.b;
        }
    return n;
}

static Status draw(Canvas *c, Arena *a, const LinePlot *p)
{
    Font font;
    TRY(font_open(&font));
    Status s = lineplot_draw(c, a, &font, p);
    font_close(&font);
    return s;
}

static LinePlot plot_of(const PlotPanel *panel)
{
    return (LinePlot){.title = "Title", .x_label = "x", .y_label = "y", .y_least = NAN,
                      .y_most = NAN, .n_panels = 1, .columns = 1, .panels = panel};
}

/* Pixels of colour 0 in the plot, that is below the legend. */
static int line_pixels(Arena *a, const double *x, const double *y, const double *error, bool y_log)
{
    Canvas c;
    PlotLine line = {.name = "", .n = N, .x = x, .y = y, .error = error};
    PlotPanel panel = {.n_lines = 1, .lines = &line};
    LinePlot p = plot_of(&panel);
    p.y_log = y_log;
    if (draw(&c, a, &p) != OK)
        return -1;
    return count_color(&c, colors_line(0));
}

TEST(a_gap_breaks_the_line)
{
    Arena a = {0};
    static const double x[N] = {0, 1, 2, 3}, y[N] = {1, 1, 1, 1}, gap[N] = {1, 1, NAN, 1},
                        zero[N] = {1, 1, 0, 1};
    int whole = line_pixels(&a, x, y, NULL, false), broken = line_pixels(&a, x, gap, NULL, false);
    T_OK(whole > 0 && broken > whole / 4 && broken < whole / 2);
    int logarithmic = line_pixels(&a, x, zero, NULL, true);
    T_OK(logarithmic > whole / 4 && logarithmic < whole / 2);
    arena_close(&a);
}

TEST(error_bars_are_drawn_where_they_are_known)
{
    Arena a = {0};
    static const double x[N] = {0, 1, 2, 3}, y[N] = {1, 1, 1, 1}, e[N] = {0.2, NAN, 0, 0.2},
                        none[N] = {NAN, NAN, NAN, NAN};
    int without = line_pixels(&a, x, y, NULL, false);
    T_OK(line_pixels(&a, x, y, e, false) > without + 100);
    T_OK(line_pixels(&a, x, y, none, false) == without);
    arena_close(&a);
}

/* The higher value is higher up. */
TEST(up_is_up)
{
    Arena a = {0};
    Canvas c;
    static const double x[2] = {0, 1}, y[2] = {0, 10};
    PlotLine line = {.name = "", .n = 2, .x = x, .y = y, .marks = true};
    PlotPanel panel = {.title = "Panel", .n_lines = 1, .lines = &line};
    LinePlot p = plot_of(&panel);
    T_STATUS_OK(draw(&c, &a, &p));
    Color ink = colors_line(0);
    int left = 0, right = 0;  // lowest row of the colour in either half
    for (int row = 200; row < c.height; row++)
        for (int i = 0; i < c.width; i++) {
            Color have = canvas_at(&c, i, row);
            if (have.r == ink.r && have.g == ink.g && have.b == ink.b)
                *(i < c.width * 0.2 ? &left : i > c.width * 0.8 ? &right : &(int){0}) = row;
        }
    T_OK(right > 0 && left > right + 200);
    arena_close(&a);
}

TEST(one_point_and_none)
{
    Arena a = {0};
    Canvas c;
    static const double x[1] = {5}, y[1] = {7}, nan[1] = {NAN};
    static const char *const steps[] = {"16", "4"};
    PlotLine line = {.name = "a rather long name of a model", .n = 1, .x = x, .y = y};
    PlotPanel panel = {.n_lines = 1, .lines = &line};
    LinePlot p = plot_of(&panel);
    line.marks = true;
    T_STATUS_OK(draw(&c, &a, &p));
    T_OK(count_color(&c, colors_line(0)) > 100);
    p.x_log = p.y_log = true;
    T_STATUS_OK(draw(&c, &a, &p));
    p.n_steps = 2;
    p.steps = steps;
    T_STATUS_OK(draw(&c, &a, &p));
    line.y = nan;
    T_FAILS(draw(&c, &a, &p), ERR_RANGE, "no point to draw");
    arena_close(&a);
}
