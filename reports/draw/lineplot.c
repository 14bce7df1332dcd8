/* lineplot.c - ranges, axes, then the lines. */
#include "reports/draw/lineplot.h"

#include <math.h>
#include <string.h>

#include "kernels/size.h"
#include "reports/draw/axes.h"
#include "reports/draw/colors.h"

enum { PLOTS_WIDTH = 1640, PLOT_HEIGHT = 560, PANEL_GAP = 60, LEGEND = 64 };

typedef struct {
    const LinePlot *p;
    const Font     *font;
    double          x0, x1, y0, y1;   // ranges of the axes
    Ticks           x, y;
    int             left, width, height, plot_w, plot_h;
} Layout;

static bool is_drawn(const LinePlot *p, double x, double y)
{
    return isfinite(x) && isfinite(y) && !(p->x_log && x <= 0) && !(p->y_log && y <= 0);
}

static void widen(double *lo, double *hi, double v)
{
    *lo = fmin(*lo, v);
    *hi = fmax(*hi, v);
}

static void find_ranges(Layout *l)
{
    const LinePlot *p = l->p;
    l->x0 = l->y0 = INFINITY;
    l->x1 = l->y1 = -INFINITY;
    for (int k = 0; k < p->n_panels; k++)
        for (int j = 0; j < p->panels[k].n_lines; j++) {
            const PlotLine *line = &p->panels[k].lines[j];
            for (int i = 0; i < line->n; i++) {
                if (!is_drawn(p, line->x[i], line->y[i]))
                    continue;
                double e = line->error && isfinite(line->error[i]) ? line->error[i] : 0;
                widen(&l->x0, &l->x1, line->x[i]);
                widen(&l->y0, &l->y1, line->y[i] + e);
                if (!p->y_log || line->y[i] > e)
                    widen(&l->y0, &l->y1, line->y[i] - e);
            }
        }
}

/* A little air, and never an empty range. */
static void pad(double *lo, double *hi, bool log_axis, double part)
{
    if (log_axis) {
        double factor = *hi > *lo ? pow(*hi / *lo, part) : 2;
        *lo /= factor;
        *hi *= factor;
    } else {
        double air = *hi > *lo ? (*hi - *lo) * part : fmax(fabs(*hi) * 0.1, 1e-3);
        *lo -= air;
        *hi += air;
    }
}

static void set_axes(Layout *l)
{
    const LinePlot *p = l->p;
    if (p->n_steps > 0) {
        l->x0 = -0.35;
        l->x1 = p->n_steps - 0.65;
        l->x.n = (int)i64_min(p->n_steps, TICKS_MAX);
        for (int i = 0; i < l->x.n; i++) {
            l->x.at[i] = i;
            strncpy(l->x.text[i], p->steps[i], sizeof l->x.text[0] - 1);
        }
    } else {
        pad(&l->x0, &l->x1, p->x_log, 0.02);
    }
    pad(&l->y0, &l->y1, p->y_log, 0.07);
    double short_of = p->y_span - (l->y1 - l->y0);
    if (!p->y_log && short_of > 0) {
        l->y0 -= short_of / 2;
        l->y1 += short_of / 2;
    }
    l->y0 = fmax(l->y0, isnan(p->y_least) ? -INFINITY : p->y_least);
    l->y1 = fmin(l->y1, isnan(p->y_most) ? INFINITY : p->y_most);
    (p->y_log ? ticks_log : ticks_linear)(&l->y, l->y0, l->y1, 8);
}

static void set_sizes(Layout *l)
{
    const LinePlot *p = l->p;
    l->plot_h = p->height ? p->height : PLOT_HEIGHT;
    int gutter = AXES_TICK + 8 + axes_widest(l->font, &l->y);
    l->left = AXES_MARGIN + AXES_LABEL_SIZE + 10 + gutter;
    l->plot_w = (PLOTS_WIDTH - (p->columns - 1) * (PANEL_GAP + gutter)) / p->columns;
    int rows = (p->n_panels + p->columns - 1) / p->columns;
    bool titled = p->panels[0].title != NULL;
    int row = (titled ? AXES_PANEL_SIZE + 18 : 0) + l->plot_h + AXES_TICK + AXES_TICK_SIZE + 12;
    l->height = axes_titles_height(p->subtitle) + LEGEND + rows * row +
                (rows - 1) * (PANEL_GAP / 2) + 8 + AXES_LABEL_SIZE + AXES_MARGIN;
    l->width = l->left + p->columns * l->plot_w + (p->columns - 1) * (PANEL_GAP + gutter) +
               AXES_MARGIN;
    int titles = 2 * AXES_MARGIN + axes_titles_width(l->font, p->title, p->subtitle);
    l->width = titles > l->width ? titles : l->width;
    if (p->n_steps == 0)
        (p->x_log ? ticks_log : ticks_linear)(&l->x, l->x0, l->x1, l->plot_w / 120);
}

static Box panel_box(const Layout *l, int i)
{
    const LinePlot *p = l->p;
    int title = p->panels[0].title ? AXES_PANEL_SIZE + 18 : 0;
    int gutter = l->left - AXES_MARGIN - AXES_LABEL_SIZE - 10;
    int row = title + l->plot_h + AXES_TICK + AXES_TICK_SIZE + 12 + PANEL_GAP / 2;
    return (Box){l->left + i % p->columns * (l->plot_w + PANEL_GAP + gutter),
                 axes_titles_height(p->subtitle) + LEGEND + title + i / p->columns * row,
                 l->plot_w, l->plot_h};
}

static double part(double v, double lo, double hi, bool log_axis)
{
    return log_axis ? log(v / lo) / log(hi / lo) : (v - lo) / (hi - lo);
}

static double x_pixel(const Layout *l, double x)
{
    return part(x, l->x0, l->x1, l->p->x_log) * l->plot_w;
}

static double y_pixel(const Layout *l, double y)
{
    return (1 - part(y, l->y0, l->y1, l->p->y_log)) * l->plot_h;
}

static void paint_axes(const Layout *l, Canvas *c, Box b, int panel)
{
    double x[TICKS_MAX], y[TICKS_MAX];
    TextStyle label = axes_style(AXES_LABEL_SIZE, AXES_SOFT, TEXT_CENTER);
    for (int i = 0; i < l->y.n; i++) {
        y[i] = y_pixel(l, l->y.at[i]);
        canvas_rect(c, b.x, b.y + (int)(y[i] + 0.5) - 1, b.width, 2, AXES_GRID);
    }
    for (int i = 0; i < l->x.n; i++) {
        x[i] = x_pixel(l, l->x.at[i]);
        canvas_rect(c, b.x + (int)(x[i] + 0.5) - 1, b.y, 2, b.height, AXES_GRID);
    }
    canvas_rect(c, b.x - 2, b.y, 2, b.height + 2, AXES_SOFT);
    canvas_rect(c, b.x - 2, b.y + b.height, b.width + 2, 2, AXES_SOFT);
    axes_x_ticks(l->font, c, b, &l->x, x);
    axes_y_ticks(l->font, c, b, &l->y, y, false);
    if (panel + l->p->columns >= l->p->n_panels)
        font_draw(l->font, c, b.x + b.width / 2,
                  b.y + b.height + AXES_TICK + AXES_TICK_SIZE + 20 + AXES_LABEL_SIZE,
                  l->p->x_label, label);
    label.vertical = true;
    if (panel % l->p->columns == 0)
        font_draw(l->font, c, AXES_MARGIN + AXES_LABEL_SIZE * 3 / 4, b.y + b.height / 2,
                  l->p->y_label, label);
}

static void paint_error(const Layout *l, Canvas *c, double x, Box b, const PlotLine *line, int i)
{
    if (!line->error || !(line->error[i] > 0))
        return;
    double low = line->y[i] - line->error[i];
    low = l->p->y_log && low <= 0 ? l->y0 : fmax(low, l->y0);
    double y0 = b.y + y_pixel(l, low);
    double y1 = b.y + y_pixel(l, fmin(line->y[i] + line->error[i], l->y1));
    Color color = colors_line(line->color);
    canvas_line(c, x, y0, x, y1, 3, color);
    canvas_line(c, x - 9, y0, x + 9, y0, 3, color);
    canvas_line(c, x - 9, y1, x + 9, y1, 3, color);
}

/* shift sets the lines of a stepped plot side by side, so that their error bars
 * do not cover each other. */
static void paint_line(const Layout *l, Canvas *c, Box b, const PlotLine *line, double shift)
{
    double px = 0, py = 0;
    bool pen = false;
    for (int i = 0; i < line->n; i++) {
        if (!is_drawn(l->p, line->x[i], line->y[i])) {
            pen = false;
            continue;
        }
        double x = b.x + x_pixel(l, line->x[i]) + shift, y = b.y + y_pixel(l, line->y[i]);
        if (pen)
            canvas_line(c, px, py, x, y, 4.5, colors_line(line->color));
        paint_error(l, c, x, b, line, i);
        if (line->marks)
            canvas_disc(c, x, y, 9, colors_line(line->color));
        pen = true;
        px = x;
        py = y;
    }
}

static void paint_panel(const Layout *l, Canvas *c, int i)
{
    const PlotPanel *panel = &l->p->panels[i];
    Box b = panel_box(l, i);
    TextStyle title = axes_style(AXES_PANEL_SIZE, AXES_INK, TEXT_LEFT);
    title.bold = true;
    if (panel->title)
        font_draw(l->font, c, b.x, b.y - 16, panel->title, title);
    paint_axes(l, c, b, i);
    for (int k = 0; k < panel->n_lines; k++)
        paint_line(l, c, b, &panel->lines[k],
                   l->p->n_steps > 0 ? 14 * (k - (panel->n_lines - 1) / 2.0) : 0);
}

/* Every name once, whatever panel it is in. */
static void paint_legend(const Layout *l, Canvas *c)
{
    TextStyle style = axes_style(AXES_LABEL_SIZE, AXES_INK, TEXT_LEFT);
    int x = l->left, y = axes_titles_height(l->p->subtitle) + 16;
    const PlotPanel *panel = &l->p->panels[0];
    for (int k = 0; k < panel->n_lines; k++) {
        const PlotLine *line = &panel->lines[k];
        canvas_line(c, x + 4, y, x + 44, y, 5, colors_line(line->color));
        if (line->marks)
            canvas_disc(c, x + 24, y, 9, colors_line(line->color));
        font_draw(l->font, c, x + 58, y + AXES_LABEL_SIZE * 3 / 8, line->name, style);
        x += 58 + font_width(l->font, line->name, style) + 44;
    }
}

Status lineplot_draw(Canvas *out, Arena *a, const Font *font, const LinePlot *p)
{
    Layout l = {.p = p, .font = font};
    CHECK(p->n_panels > 0 && p->columns > 0);
    find_ranges(&l);
    if (!(l.x1 >= l.x0))
        FAIL(ERR_RANGE, "picture \"%s\": no point to draw", p->title);
    set_axes(&l);
    set_sizes(&l);
    TRY(canvas_init(out, a, l.width, l.height, AXES_PAPER));
    axes_titles(font, out, p->title, p->subtitle);
    paint_legend(&l, out);
    for (int i = 0; i < p->n_panels; i++)
        paint_panel(&l, out, i);
    return OK;
}
