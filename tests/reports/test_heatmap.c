/* test_heatmap.c - colours, joining of cells, and where cells land. */
#include "reports/draw/heatmap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"

static bool same(Color a, Color b)
{
    return a.r == b.r && a.g == b.g && a.b == b.b;
}

static bool is_hex(Color c, uint32_t hex)
{
    return same(c, (Color){(uint8_t)(hex >> 16), (uint8_t)(hex >> 8), (uint8_t)hex});
}

TEST(the_ends_of_the_maps_are_the_published_ones)
{
    ColorScale v = {COLORS_LINEAR, 0, 9}, d = {COLORS_SIGNED, 0, 1};
    T_OK(is_hex(colors_of(&v, 0), 0x440154) && is_hex(colors_of(&v, 9), 0xfde725));
    T_OK(is_hex(colors_of(&v, 4), 0x26828e) && is_hex(colors_of(&v, 1), 0x482878));
    T_OK(is_hex(colors_of(&d, -1), 0x053061) && is_hex(colors_of(&d, 1), 0x67001f));
    T_OK(is_hex(colors_of(&d, 0), 0xf7f7f7));
    T_OK(same(colors_of(&v, 1e9), colors_of(&v, 9)));
}

/* A perceptually uniform map grows steadily brighter (Rec. 709 luma). */
TEST(viridis_grows_brighter_everywhere)
{
    ColorScale s = {COLORS_LINEAR, 0, 1};
    double last = -1;
    for (int i = 0; i <= 100; i++) {
        Color c = colors_ramp(&s, i / 100.0);
        double luma = 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b;
        T_OK(luma > last - 0.5);
        last = luma;
    }
}

TEST(logarithmic_places)
{
    ColorScale s = {COLORS_LOG, 0.1, 1000}, d = {COLORS_SIGNED_LOG, 0.01, 1};
    T_NEAR(colors_place(&s, 10), 0.5, 1e-12);
    T_NEAR(colors_place(&s, -10), 0.5, 1e-12);
    T_NEAR(colors_place(&s, 0.001), 0, 0);
    T_OK(isnan(colors_place(&s, 0)) && isnan(colors_place(&s, NAN)));
    T_NEAR(colors_place(&d, 0.1), 0.75, 1e-12);
    T_NEAR(colors_place(&d, -0.1), 0.25, 1e-12);
    T_NEAR(colors_place(&d, 1e-6), 0.5, 0);
}

TEST(zero_and_nan_have_colours_no_number_gets)
{
    ColorScale scales[] = {{COLORS_LOG, 1, 10}, {COLORS_LINEAR, 0, 10},
                           {COLORS_SIGNED, 0, 10}, {COLORS_SIGNED_LOG, 1, 10}};
    T_OK(same(colors_of(&scales[0], 0), COLOR_ZERO));
    T_OK(same(colors_of(&scales[0], -0.0), COLOR_ZERO));
    T_OK(!same(colors_of(&scales[1], 0), COLOR_ZERO));
    for (int k = 0; k < 4; k++) {
        T_OK(same(colors_of(&scales[k], NAN), COLOR_NOT_FINITE));
        T_OK(same(colors_of(&scales[k], -INFINITY), COLOR_NOT_FINITE));
        for (int i = 0; i <= 1000; i++) {
            Color c = colors_ramp(&scales[k], i / 1000.0);
            T_OK(!same(c, COLOR_ZERO) && !same(c, COLOR_NOT_FINITE));
        }
    }
}

TEST(scales_fit_what_is_there)
{
    static const float x[] = {0.5f, 0, NAN, 200, INFINITY}, y[] = {-3, 2}, z[] = {0, 0},
                       one[] = {7};
    ColorRange r = {0};
    colors_range(&r, x, 5);
    T_OK(r.least == 0.5 && r.most == 200 && r.zero && r.not_finite && !r.negative);
    ColorScale s = colors_fit(&r, false, true, 4);
    T_OK(s.kind == COLORS_LOG && s.lo == 0.5 && s.hi == 200);
    s = colors_fit(&r, true, false, 2);
    T_NEAR(s.lo, 2, 1e-12);
    r = (ColorRange){0};
    colors_range(&r, y, 2);
    s = colors_fit(&r, false, true, 4);
    T_OK(s.kind == COLORS_SIGNED && s.hi == 3);
    r = (ColorRange){0};
    colors_range(&r, z, 2);  // only zeros: still a scale
    s = colors_fit(&r, true, false, 4);
    T_OK(s.hi > s.lo && s.lo > 0);
    r = (ColorRange){0};
    colors_range(&r, one, 1);  // one value: not an empty range
    s = colors_fit(&r, true, false, 4);
    T_OK(s.hi == 7 && s.lo > 0 && s.lo < s.hi);
}

TEST(an_outlier_never_vanishes)
{
    enum { ROWS = 7, COLS = 1001 };
    static float x[ROWS * COLS], out[4 * 251];
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = 1;
    x[6 * COLS + 1000] = -70;   // the last, ragged block
    x[5 * COLS + 998] = -50;    // within a block: magnitude counts, the sign stays
    x[2 * COLS + 5] = 30;
    x[3 * COLS + 7] = NAN;      // goes first, whatever stands beside it
    x[3 * COLS + 6] = 1e30f;
    heatmap_reduce(out, x, ROWS, COLS, 2, 4);
    T_OK(out[3 * 251 + 250] == -70 && out[2 * 251 + 249] == -50);
    T_OK(isnan(out[1 * 251 + 1]));
    x[3 * COLS + 4] = NAN;      // and stays when a large one follows
    x[3 * COLS + 7] = 1;
    heatmap_reduce(out, x, ROWS, COLS, 2, 4);
    T_OK(isnan(out[1 * 251 + 1]));
    x[3 * COLS + 4] = 1;
    x[3 * COLS + 7] = 1;
    heatmap_reduce(out, x, ROWS, COLS, 2, 4);
    T_OK(out[1 * 251 + 1] == 1e30f && out[0] == 1);
}

/* Counts pixels of a colour and finds the rectangle they lie in. */
static int find_color(const Canvas *c, Color want, int box[4])
{
    int n = 0;
    box[0] = box[1] = 1 << 30;
    box[2] = box[3] = -1;
    for (int y = 0; y < c->height; y++)
        for (int x = 0; x < c->width; x++)
            if (same(canvas_at(c, x, y), want)) {
                n++;
                box[0] = x < box[0] ? x : box[0];
                box[1] = y < box[1] ? y : box[1];
                box[2] = x > box[2] ? x : box[2];
                box[3] = y > box[3] ? y : box[3];
            }
    return n;
}

static Status draw(Canvas *c, Arena *a, const HeatPanel *panels, int n, ColorScale scale,
                   bool square)
{
    Font font;
    Heatmap h = {.title = "A title wider than one cell and its colour bar",
                 .subtitle = "Subtitle", .x_label = "x", .y_label = "y",
                 .value_label = "value", .scale = scale, .columns = n < 3 ? n : 3,
                 .square = square, .absent_label = "not there", .n_panels = n,
                 .panels = panels};
    TRY(font_open(&font));
    Status s = heatmap_draw(c, a, &font, &h);
    font_close(&font);
    return s;
}

/* NaN cells in the form of an F: their colour is on no other pixel. */
TEST(cells_stand_where_the_matrix_has_them)
{
    static const char *const rows[] = {"#####", "#....", "####.", "#....", "#....", "#...."};
    Arena a = {0};
    Canvas c;
    float at[30];
    int box[4], cells = 0;
    for (int i = 0; i < 30; i++) {
        at[i] = rows[i / 5][i % 5] == '#' ? NAN : 1 + (float)i;
        cells += isnan(at[i]);
    }
    HeatPanel p = {.title = "F", .rows = 6, .cols = 5, .at = at};
    T_STATUS_OK(draw(&c, &a, &p, 1, (ColorScale){COLORS_LINEAR, 0, 40}, false));
    int n = find_color(&c, COLOR_NOT_FINITE, box);
    int cell = (box[2] - box[0] + 1) / 5;
    /* The swatch of the legend has the colour too, 26 x 26, below the cells. */
    T_OK(n == cells * cell * cell + 26 * 26);
    int x = box[0] + cell / 2, y = box[1] + cell / 2;
    for (int i = 0; i < 30; i++) {
        Color have = canvas_at(&c, x + i % 5 * cell, y + i / 5 * cell);
        T_OK(same(have, COLOR_NOT_FINITE) == (rows[i / 5][i % 5] == '#'));
    }
    ColorScale s = {COLORS_LINEAR, 0, 40};
    T_OK(same(canvas_at(&c, x + 4 * cell, y + 3 * cell), colors_of(&s, 20)));
    arena_close(&a);
}

TEST(zeros_on_a_logarithmic_scale_are_shown)
{
    Arena a = {0};
    Canvas c;
    int box[4];
    static const float at[] = {0, 1, 10, 100};
    HeatPanel p = {.title = "zero", .rows = 1, .cols = 4, .at = at};
    T_STATUS_OK(draw(&c, &a, &p, 1, (ColorScale){COLORS_LOG, 1, 100}, false));
    T_OK(find_color(&c, COLOR_ZERO, box) > 26 * 26);
    T_STATUS_OK(draw(&c, &a, &p, 1, (ColorScale){COLORS_LINEAR, 0, 100}, false));
    T_OK(find_color(&c, COLOR_ZERO, box) == 0);
    arena_close(&a);
}

/* A row that is not there has the colour of nothing, not that of its NaN, and no part in what
 * the legend explains. */
TEST(absent_rows_are_no_values)
{
    Arena a = {0};
    Canvas c;
    int box[4];
    static const float   at[] = {1, 2, NAN, NAN, 3, 4};
    static const uint8_t absent[] = {0, 1, 0};
    ColorScale scale = {COLORS_LINEAR, 0, 10};
    HeatPanel  p = {.title = "p", .rows = 3, .cols = 2, .at = at, .absent = absent};
    T_STATUS_OK(draw(&c, &a, &p, 1, scale, false));
    T_OK(find_color(&c, COLOR_NOT_FINITE, box) == 0);
    int n = find_color(&c, COLOR_ZERO, box), row = find_color(&c, colors_of(&scale, 1), box);
    T_OK(row > 0 && n == 2 * row + 26 * 26);
    p.absent = NULL;
    T_STATUS_OK(draw(&c, &a, &p, 1, scale, false));
    T_OK(find_color(&c, COLOR_ZERO, box) == 0 && find_color(&c, COLOR_NOT_FINITE, box) > 0);
    arena_close(&a);
}

/* All sizes give a picture whose outermost pixels are paper: nothing is cut. */
static bool margins_are_clean(const Canvas *c)
{
    for (int y = 0; y < c->height; y++)
        for (int x = 0; x < c->width; x++) {
            bool inside = x >= 12 && y >= 12 && x < c->width - 12 && y < c->height - 12;
            if (!inside && !same(canvas_at(c, x, y), (Color){255, 255, 255}))
                return false;
        }
    return true;
}

TEST(any_shape_fits)
{
    static const int64_t shapes[][2] = {{1, 1}, {1, 9}, {9, 1}, {2, 3000}, {3000, 2}, {40, 40},
                                        {600, 700}, {32, 4096}, {1, 1561}, {401, 5}};
    Arena a = {0};
    for (int i = 0; i < 10; i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1];
        float *at = arena_alloc(&a, rows * cols, sizeof *at);
        for (int64_t k = 0; k < rows * cols; k++)
            at[k] = (float)(k % 7);
        HeatPanel p[3] = {{.title = "one", .rows = rows, .cols = cols, .at = at},
                          {.title = "two", .rows = rows, .cols = cols, .at = at},
                          {.title = "three", .rows = 1, .cols = 1, .at = at}};
        for (int n = 1; n <= 3; n++)
            for (int square = 0; square < 2; square++) {
                Canvas c;
                ArenaMark mark = arena_mark(&a);
                T_STATUS_OK(draw(&c, &a, p, n, (ColorScale){COLORS_LINEAR, 0, 7}, square));
                T_OK(c.width <= 2100 && c.height <= 2100);
                T_OK(margins_are_clean(&c));
                arena_rewind(&a, mark);
            }
    }
    arena_close(&a);
}

TEST(every_failed_allocation_is_an_error)
{
    Arena a = {0};
    Canvas c;
    static const float at[] = {1, 2, 3, 4};
    HeatPanel p = {.title = "p", .rows = 2, .cols = 2, .at = at};
    bool done = false;
    int64_t k;
    for (k = 1; k < 50 && !done; k++) {
        arena_fail_at(k);
        Status s = draw(&c, &a, &p, 1, (ColorScale){COLORS_LINEAR, 0, 7}, false);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        done = s == OK;
    }
    T_OK(done && k > 3);
    arena_close(&a);
}
