/* heatmap.c - lays out the grid of panels, then paints it. */
#include "reports/draw/heatmap.h"

#include <math.h>
#include <stdio.h>

#include "kernels/size.h"
#include "reports/draw/axes.h"

enum {
    PLOTS_WIDTH = 1560,   // of all panels in a row, with the gaps between them
    PANEL_HEIGHT = 400,   // of one panel whose cells are not square
    MAX_CELL = 64,
    MIN_CELL = 2,         // one pixel as shown: thinner lines fade
    PANEL_GAP = 44, BAR_WIDTH = 30, BAR_HEIGHT = 260, NAME_CELL = AXES_TICK_SIZE + 2
};

typedef struct {
    int64_t kx, ky;          // cells joined into one
    int     rows, cols;      // after that
    float  *at;              // [rows, cols]
    Ticks   x, y;
    bool    names;           // words along both axes
    int     name_width;      // of the widest
    Box     box;             // the plot
    int     left, below;     // room for its ticks
} Panel;

typedef struct {
    const Heatmap *h;
    const Font    *font;
    Panel         *panels;
    int            cell_w, cell_h;
    int            labels_left, bottom;   // left of the first plot, below the last
    Box            bar;
    Ticks          bar_ticks;
    int            width, height;
} Layout;

/* Does b stand for the pair rather than a? Nothing finite is larger than an a
 * that is not. */
static bool outranks(float b, float a)
{
    return !isfinite(b) || fabsf(b) > fabsf(a);
}

void heatmap_reduce(float *out, const float *x, int64_t rows, int64_t cols, int64_t ky,
                    int64_t kx)
{
    int64_t n = ceil_div(cols, kx);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            float *o = out + r / ky * n + c / kx;
            float value = x[r * cols + c];
            bool first = r % ky == 0 && c % kx == 0;
            if (first || outranks(value, *o))
                *o = value;
        }
}

/* --- layout --- */

static int grid_rows(const Heatmap *h)
{
    return (h->n_panels + h->columns - 1) / h->columns;
}

/* Room for one plot of a row beside the others' ticks and gaps. */
static int room_across(const Heatmap *h)
{
    int beside = h->square ? 120 : 60;  // words need more than numbers
    return (PLOTS_WIDTH - (h->columns - 1) * (PANEL_GAP + beside)) / h->columns;
}

static Status reduce_panels(Layout *l, Arena *a)
{
    int across = room_across(l->h), down = l->h->square ? across : PANEL_HEIGHT;
    ARENA_NEW(l->panels, a, l->h->n_panels);
    l->cell_w = l->cell_h = MAX_CELL;
    for (int i = 0; i < l->h->n_panels; i++) {
        const HeatPanel *in = &l->h->panels[i];
        Panel *p = &l->panels[i];
        CHECK(in->rows > 0 && in->cols > 0);
        p->kx = in->cols * MIN_CELL <= across ? 1 : ceil_div(in->cols, across / MIN_CELL);
        p->ky = in->rows * MIN_CELL <= down ? 1 : ceil_div(in->rows, down / MIN_CELL);
        if (l->h->square)
            p->kx = p->ky = i64_max(p->kx, p->ky);
        p->cols = (int)ceil_div(in->cols, p->kx);
        p->rows = (int)ceil_div(in->rows, p->ky);
        ARENA_NEW(p->at, a, (int64_t)p->rows * p->cols);
        heatmap_reduce(p->at, in->at, in->rows, in->cols, p->ky, p->kx);
        l->cell_w = (int)i64_min(l->cell_w, across / p->cols);
        l->cell_h = (int)i64_min(l->cell_h, down / p->rows);
    }
    if (l->h->square)
        l->cell_w = l->cell_h = (int)i64_min(l->cell_w, l->cell_h);
    return OK;
}

/* Words along the axes where every one has its line, else numbers. */
static void choose_ticks(Layout *l, int i)
{
    const HeatPanel *in = &l->h->panels[i];
    Panel *p = &l->panels[i];
    TextStyle style = axes_style(AXES_TICK_SIZE, AXES_INK, TEXT_LEFT);
    p->names = in->names && p->kx == 1 && p->ky == 1 && in->rows == in->cols &&
               l->cell_w >= NAME_CELL && l->cell_h >= NAME_CELL;
    for (int64_t k = 0; p->names && k < in->rows; k++)
        p->name_width =
            (int)i64_max(p->name_width, font_width(l->font, in->names[k], style));
    char widest[24];
    snprintf(widest, sizeof widest, "%lld", (long long)in->cols);
    int room = font_width(l->font, widest, style) + 30;
    ticks_index(&p->x, in->cols, p->cols * l->cell_w / room);
    ticks_index(&p->y, in->rows, p->rows * l->cell_h / (AXES_TICK_SIZE + 12));
    p->left = AXES_TICK + 8 + (p->names ? p->name_width : axes_widest(l->font, &p->y));
    p->below = AXES_TICK + 8 + (p->names ? p->name_width : AXES_TICK_SIZE);
}

/* Columns of the grid are as wide as their widest panel, rows as high as theirs. */
static void place_panels(Layout *l)
{
    const Heatmap *h = l->h;
    int y = axes_titles_height(h->subtitle), right = 0;
    l->labels_left = AXES_MARGIN + AXES_LABEL_SIZE + 10;
    for (int row = 0; row < grid_rows(h); row++) {
        int below = 0, high = 0;
        y += AXES_PANEL_SIZE + 18;
        for (int i = row * h->columns; i < h->n_panels && i < (row + 1) * h->columns; i++) {
            l->panels[i].box.y = y;
            below = (int)i64_max(below, l->panels[i].below);
            high = (int)i64_max(high, l->panels[i].box.height);
        }
        y += high + below + PANEL_GAP - 14;
    }
    int x = l->labels_left;
    for (int column = 0; column < h->columns && column < h->n_panels; column++) {
        int left = 0, wide = 0;
        for (int i = column; i < h->n_panels; i += h->columns) {
            int title = font_width(l->font, h->panels[i].title,
                                   axes_style(AXES_PANEL_SIZE, AXES_INK, TEXT_LEFT)) * 11 / 10;
            left = (int)i64_max(left, l->panels[i].left);
            wide = (int)i64_max(wide, i64_max(l->panels[i].box.width, title));
        }
        for (int i = column; i < h->n_panels; i += h->columns)
            l->panels[i].box.x = x + left;
        right = x + left + wide;
        x = right + PANEL_GAP;
    }
    l->bottom = y - PANEL_GAP + 14;
    l->width = right;
}

/* Does the colour of zeros occur, which is not on the bar? */
static bool has_zero(const Layout *l, const ColorRange *range)
{
    return l->h->causal || (range->zero && isnan(colors_place(&l->h->scale, 0)));
}

static bool has_absent(const Layout *l)
{
    for (int i = 0; i < l->h->n_panels; i++)
        for (int64_t row = 0; row < l->h->panels[i].rows; row++)
            if (l->h->panels[i].absent && l->h->panels[i].absent[row])
                return true;
    return false;
}

static bool has_legend(const Layout *l, const ColorRange *range)
{
    return range->not_finite || has_zero(l, range) || has_absent(l);
}

/* The bar stands to the right of all panels, as high as they are together. */
static void place_bar(Layout *l, const ColorRange *range)
{
    const Panel *first = &l->panels[0], *last = &l->panels[l->h->n_panels - 1];
    int high = last->box.y + last->box.height - first->box.y;
    l->bar = (Box){l->width + PANEL_GAP + 8, first->box.y, BAR_WIDTH,
                   high > BAR_HEIGHT ? (high > 3 * BAR_HEIGHT ? 3 * BAR_HEIGHT : high)
                                     : BAR_HEIGHT};
    colors_ticks(&l->h->scale, &l->bar_ticks, l->bar.height / 44);
    int right = l->bar.x + BAR_WIDTH + AXES_TICK + 8 + axes_widest(l->font, &l->bar_ticks) +
                AXES_GAP + AXES_LABEL_SIZE + AXES_MARGIN;
    int titles = 2 * AXES_MARGIN + axes_titles_width(l->font, l->h->title, l->h->subtitle);
    l->width = right > titles ? right : titles;
    int bar_bottom = l->bar.y + l->bar.height + 12;
    l->bottom += 18 + AXES_LABEL_SIZE;  // the x label
    l->bottom = bar_bottom > l->bottom ? bar_bottom : l->bottom;
    l->height = l->bottom + (has_legend(l, range) ? AXES_GAP + 34 : 0) + AXES_MARGIN;
}

/* --- painting --- */

/* In a causal map a weight that is exactly zero is one that vanished: the colour of
 * the smallest, not that of the columns that do not exist. */
static Color cell_color(const Layout *l, const Panel *p, int row, int col)
{
    double value = p->at[(int64_t)row * p->cols + col];
    if (l->h->causal && col * p->kx >= (row + 1) * p->ky)
        return COLOR_ZERO;
    if (l->h->causal && value == 0)
        value = l->h->scale.lo * 1e-9;
    return colors_of(&l->h->scale, value);
}

/* Are all rows absent that were joined into this one? */
static bool is_absent(const Panel *p, const HeatPanel *in, int row)
{
    int64_t first = (int64_t)row * p->ky, end = i64_min(first + p->ky, in->rows);
    for (int64_t i = first; i < end; i++)
        if (!in->absent || !in->absent[i])
            return false;
    return true;
}

static void paint_cells(const Layout *l, Canvas *c, const Panel *p, const HeatPanel *in)
{
    for (int row = 0; row < p->rows; row++)
        for (int col = 0; col < p->cols; col++)
            canvas_rect(c, p->box.x + col * l->cell_w, p->box.y + row * l->cell_h, l->cell_w,
                        l->cell_h,
                        is_absent(p, in, row) ? COLOR_ZERO : cell_color(l, p, row, col));
    canvas_frame(c, p->box.x, p->box.y, p->box.width, p->box.height, 2, AXES_SOFT);
}

static void paint_names(const Layout *l, Canvas *c, const Panel *p, const HeatPanel *in)
{
    TextStyle beside = axes_style(AXES_TICK_SIZE, AXES_INK, TEXT_RIGHT), under = beside;
    under.vertical = true;
    for (int i = 0; i < p->rows; i++) {
        int middle = i * l->cell_h + l->cell_h / 2;
        font_draw(l->font, c, p->box.x - AXES_GAP, p->box.y + middle + AXES_TICK_SIZE * 3 / 8,
                  in->names[i], beside);
        font_draw(l->font, c, p->box.x + middle + AXES_TICK_SIZE * 3 / 8,
                  p->box.y + p->box.height + AXES_GAP, in->names[i], under);
    }
}

static void paint_ticks(const Layout *l, Canvas *c, const Panel *p)
{
    double x[TICKS_MAX], y[TICKS_MAX];
    for (int i = 0; i < p->x.n; i++)
        x[i] = (p->x.at[i] + 0.5) / (double)p->kx * l->cell_w;
    for (int i = 0; i < p->y.n; i++)
        y[i] = (p->y.at[i] + 0.5) / (double)p->ky * l->cell_h;
    axes_x_ticks(l->font, c, p->box, &p->x, x);
    axes_y_ticks(l->font, c, p->box, &p->y, y, false);
}

static void paint_panel(const Layout *l, Canvas *c, int i)
{
    const Panel *p = &l->panels[i];
    const HeatPanel *in = &l->h->panels[i];
    TextStyle title = axes_style(AXES_PANEL_SIZE, AXES_INK, TEXT_LEFT);
    TextStyle label = axes_style(AXES_LABEL_SIZE, AXES_SOFT, TEXT_CENTER);
    title.bold = true;
    font_draw(l->font, c, p->box.x, p->box.y - 14, in->title, title);
    paint_cells(l, c, p, in);
    if (p->names)
        paint_names(l, c, p, in);
    else
        paint_ticks(l, c, p);
    if (i + l->h->columns >= l->h->n_panels)  // the lowest of its column
        font_draw(l->font, c, p->box.x + p->box.width / 2,
                  p->box.y + p->box.height + p->below + 8 + AXES_LABEL_SIZE, l->h->x_label, label);
    label.vertical = true;
    if (i % l->h->columns == 0)
        font_draw(l->font, c, AXES_MARGIN + AXES_LABEL_SIZE * 3 / 4,
                  p->box.y + p->box.height / 2, l->h->y_label, label);
}

static void paint_bar(const Layout *l, Canvas *c)
{
    Box b = l->bar;
    double place[TICKS_MAX];
    for (int y = 0; y < b.height; y++)
        canvas_rect(c, b.x, b.y + y, b.width, 1,
                    colors_ramp(&l->h->scale, 1 - (y + 0.5) / b.height));
    canvas_frame(c, b.x, b.y, b.width, b.height, 2, AXES_SOFT);
    for (int i = 0; i < l->bar_ticks.n; i++) {
        double p = colors_place(&l->h->scale, l->bar_ticks.at[i]);
        place[i] = (1 - (isnan(p) ? 0.5 : p)) * b.height;
    }
    axes_y_ticks(l->font, c, b, &l->bar_ticks, place, true);
    TextStyle label = axes_style(AXES_LABEL_SIZE, AXES_SOFT, TEXT_CENTER);
    label.vertical = true;
    int x = b.x + b.width + AXES_TICK + 8 + axes_widest(l->font, &l->bar_ticks) + AXES_GAP;
    font_draw(l->font, c, x + AXES_LABEL_SIZE * 3 / 4, b.y + b.height / 2, l->h->value_label,
              label);
}

static int paint_swatch(const Layout *l, Canvas *c, int x, Color color, const char *text)
{
    TextStyle style = axes_style(AXES_TICK_SIZE, AXES_INK, TEXT_LEFT);
    int y = l->bottom + AXES_GAP;
    canvas_rect(c, x, y, 26, 26, color);
    canvas_frame(c, x, y, 26, 26, 1, AXES_SOFT);
    font_draw(l->font, c, x + 36, y + 13 + AXES_TICK_SIZE * 3 / 8, text, style);
    return x + 36 + font_width(l->font, text, style) + 40;
}

static void paint_legend(const Layout *l, Canvas *c, const ColorRange *range)
{
    int x = l->panels[0].box.x;
    if (has_zero(l, range))
        x = paint_swatch(l, c, x, COLOR_ZERO,
                         l->h->zero_label ? l->h->zero_label : "exactly zero");
    if (has_absent(l))
        x = paint_swatch(l, c, x, COLOR_ZERO, l->h->absent_label);
    if (range->not_finite)
        paint_swatch(l, c, x, COLOR_NOT_FINITE, "NaN or infinite");
}

/* Of the rows that are there. */
static void add_range(ColorRange *range, const HeatPanel *p)
{
    for (int64_t row = 0; row < p->rows; row++)
        if (!p->absent || !p->absent[row])
            colors_range(range, p->at + row * p->cols, p->cols);
}

Status heatmap_draw(Canvas *out, Arena *a, const Font *font, const Heatmap *h)
{
    Layout l = {.h = h, .font = font};
    ColorRange range = {0};
    CHECK(h->n_panels > 0 && h->columns > 0);
    TRY(reduce_panels(&l, a));
    for (int i = 0; i < h->n_panels; i++) {
        add_range(&range, &h->panels[i]);
        l.panels[i].box.width = l.panels[i].cols * l.cell_w;
        l.panels[i].box.height = l.panels[i].rows * l.cell_h;
        choose_ticks(&l, i);
    }
    place_panels(&l);
    place_bar(&l, &range);
    TRY(canvas_init(out, a, l.width, l.height, AXES_PAPER));
    axes_titles(font, out, h->title, h->subtitle);
    for (int i = 0; i < h->n_panels; i++)
        paint_panel(&l, out, i);
    paint_bar(&l, out);
    paint_legend(&l, out, &range);
    return OK;
}
