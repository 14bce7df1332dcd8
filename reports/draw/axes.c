/* axes.c - titles and ticks. */
#include "reports/draw/axes.h"

const Color AXES_PAPER = {255, 255, 255}, AXES_INK = {0x1c, 0x20, 0x26},
            AXES_SOFT = {0x5a, 0x62, 0x6e}, AXES_GRID = {0xe3, 0xe6, 0xea};

TextStyle axes_style(int size, Color color, TextAlign align)
{
    return (TextStyle){.size = size, .color = color, .align = align};
}

static TextStyle title_style(void)
{
    TextStyle s = axes_style(AXES_TITLE_SIZE, AXES_INK, TEXT_LEFT);
    s.bold = true;
    return s;
}

static TextStyle subtitle_style(void)
{
    return axes_style(AXES_LABEL_SIZE, AXES_SOFT, TEXT_LEFT);
}

int axes_titles_height(const char *subtitle)
{
    return AXES_MARGIN + AXES_TITLE_SIZE + (subtitle ? AXES_LABEL_SIZE + 14 : 0) + 22;
}

int axes_titles_width(const Font *f, const char *title, const char *subtitle)
{
    int one = font_width(f, title, title_style());
    int two = subtitle ? font_width(f, subtitle, subtitle_style()) : 0;
    return one > two ? one : two;
}

void axes_titles(const Font *f, Canvas *c, const char *title, const char *subtitle)
{
    int y = AXES_MARGIN + AXES_TITLE_SIZE * 3 / 4;
    font_draw(f, c, AXES_MARGIN, y, title, title_style());
    if (subtitle)
        font_draw(f, c, AXES_MARGIN, y + AXES_LABEL_SIZE + 20, subtitle, subtitle_style());
}

int axes_widest(const Font *f, const Ticks *t)
{
    int widest = 0;
    for (int i = 0; i < t->n; i++) {
        int w = font_width(f, t->text[i], axes_style(AXES_TICK_SIZE, AXES_INK, TEXT_LEFT));
        widest = w > widest ? w : widest;
    }
    return widest;
}

void axes_x_ticks(const Font *f, Canvas *c, Box box, const Ticks *t, const double *place)
{
    int y = box.y + box.height + 2;
    for (int i = 0; i < t->n; i++) {
        int x = box.x + (int)(place[i] + 0.5);
        canvas_rect(c, x - 1, y, 2, AXES_TICK, AXES_SOFT);
        font_draw(f, c, x, y + AXES_TICK + 4 + AXES_TICK_SIZE * 4 / 5, t->text[i],
                  axes_style(AXES_TICK_SIZE, AXES_INK, TEXT_CENTER));
    }
}

void axes_y_ticks(const Font *f, Canvas *c, Box box, const Ticks *t, const double *place,
                  bool on_right)
{
    for (int i = 0; i < t->n; i++) {
        int y = box.y + (int)(place[i] + 0.5);
        int x = on_right ? box.x + box.width + 2 : box.x - 2 - AXES_TICK;
        canvas_rect(c, x, y - 1, AXES_TICK, 2, AXES_SOFT);
        font_draw(f, c, on_right ? x + AXES_TICK + 6 : x - 6, y + AXES_TICK_SIZE * 3 / 8,
                  t->text[i],
                  axes_style(AXES_TICK_SIZE, AXES_INK, on_right ? TEXT_LEFT : TEXT_RIGHT));
    }
}
