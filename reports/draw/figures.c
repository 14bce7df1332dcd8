/* figures.c - pictures of matrices. Those of curves are in figure_curves.c. */
#include "reports/draw/figures.h"

#include <stdio.h>
#include <string.h>

#include "kernels/size.h"
#include "reports/draw/figure_work.h"
#include "reports/draw/heatmap.h"
#include "reports/tables.h"

enum { MAX_PANELS = 3 * FIGURES_MODELS, NAME_CHARS = 12 };

typedef struct {
    FigureWork *work;
    ColorRange  range;
    int         n;
    HeatPanel   at[MAX_PANELS];
} Panels;

Status figure_add(FigureWork *w, const Canvas *c, const char *file, const char *alt,
                  const char *caption)
{
    PngImage png;
    CHECK(w->out->n < FIGURES_MAX);
    TRY(png_encode(&png, &w->scratch, c));
    Figure *f = &w->out->at[w->out->n];
    *f = (Figure){.file = file, .caption = caption, .alt = alt, .width = c->width / 2,
                  .height = c->height / 2};
    f->png = (PngImage){arena_raw(w->arena, (int64_t)png.size, 1), png.size};
    if (!f->png.data || !caption || !alt)
        FAIL(ERR_MEMORY, "out of memory: picture %s", file);
    memcpy(f->png.data, png.data, png.size);
    w->out->n++;
    arena_close(&w->scratch);
    return OK;
}

/* A panel of rows x cols items of s, the first at `first`, then every `step`. */
static Status add_panel(Panels *p, const char *title, const Series *s, int64_t first,
                        int64_t row_step, int64_t step, int64_t rows, int64_t cols)
{
    float *at;
    if (p->n == MAX_PANELS || rows < 1 || cols < 1)
        return OK;
    if (!title)
        FAIL(ERR_MEMORY, "out of memory: title of a picture");
    ARENA_NEW(at, &p->work->scratch, rows * cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            at[r * cols + c] = (float)series_at(s, first + r * row_step + c * step);
    colors_range(&p->range, at, rows * cols);
    p->at[p->n++] = (HeatPanel){.title = title, .rows = rows, .cols = cols, .at = at};
    return OK;
}

static Status finish(Panels *p, Heatmap *h, const char *file, const char *alt,
                     const char *caption)
{
    Canvas canvas;
    h->panels = p->at;
    h->n_panels = p->n;
    TRY(heatmap_draw(&canvas, &p->work->scratch, &p->work->font, h));
    return figure_add(p->work, &canvas, file, alt, caption);
}

/* Of all panels together, as the user asked or else as suits the figure. */
static ColorScale fit_scale(const Panels *p, bool log_scale, bool choose, double decades)
{
    if (p->work->color != COLOR_AUTO)
        return colors_fit(&p->range, p->work->color == COLOR_LOG, false, decades);
    return colors_fit(&p->range, log_scale, choose, decades);
}

/* --- layer x head --- */

/* Did a map record anything, be it NaN? */
static bool recorded(const SeriesSet *set, int64_t layer, int64_t head, int64_t map)
{
    static const char *const COUNTS[] = {"logits/count", "logits/nan", "logits/pos_inf",
                                         "logits/neg_inf"};
    bool any = false;
    for (int i = 0; i < 4; i++) {
        const Series *s = series_find_dims(set, COUNTS[i], "layer,head,map");
        any |= !s || series_at(s, (layer * s->shape[1] + head) * s->shape[2] + map) > 0;
    }
    return any;
}

/* Maps that recorded nothing: of a whole layer, it has no attention; of some heads, they share
 * the noise map of the head before them, which has recorded it. */
static Status fill_gaps(Panels *p, const SeriesSet *set, int64_t map)
{
    HeatPanel *panel = &p->at[p->n - 1];
    int64_t    H = panel->cols;
    uint8_t   *absent;
    ARENA_NEW(absent, &p->work->scratch, panel->rows);
    for (int64_t l = 0; l < panel->rows; l++) {
        float *row = (float *)panel->at + l * H;
        absent[l] = !recorded(set, l, 0, map);
        if (absent[l])
            memset(row, 0, (size_t)H * sizeof *row);
        for (int64_t h = 1; !absent[l] && h < H; h++)
            if (!recorded(set, l, h, map))
                row[h] = row[h - 1];
    }
    panel->absent = absent;
    return OK;
}

static Status draw_heads(FigureWork *w)
{
    Panels p = {.work = w};
    for (int i = 0; i < w->n_sets; i++) {
        const Series *s = series_find_dims(&w->sets[i], "logits/absmax", "layer,head,map");
        if (!s)
            continue;
        int64_t heads = s->shape[1], maps = s->shape[2];
        for (int64_t m = 0; m < maps; m++) {
            const char *title = maps == 1 ? w->sets[i].model
                                          : arena_printf(&w->scratch, "%s, map %lld",
                                                         w->sets[i].model, (long long)m + 1);
            TRY(add_panel(&p, title, s, m, heads * maps, maps, s->shape[0], heads));
            TRY(fill_gaps(&p, &w->sets[i], m));
        }
    }
    if (p.n == 0)
        return OK;
    Heatmap h = {.title = "Largest attention logit of every head",
                 .subtitle = "max |q·k/√d| over all allowed positions of the text",
                 .x_label = "head", .y_label = "layer", .value_label = "largest |logit|",
                 .absent_label = "layers without attention",
                 .scale = fit_scale(&p, false, true, 4),
                 .columns = (int)i64_min(p.n, 3)};
    return finish(&p, &h, "logits-heads.png",
                  "Heatmap of the largest attention logit, layer by head, one panel a model "
                  "and map.",
                  "Each cell is one attention head: the brighter, the larger the largest "
                  "attention logit it produced anywhere in the text. A differential model has "
                  "two maps a head, each with its own panel. All panels share one colour "
                  "scale, so that equal colours mean equal sizes.");
}

/* --- layer x channel, layer x position --- */

typedef struct {
    const char *series, *dims, *file, *title, *subtitle, *x_label, *alt, *caption;
} Wide;

static const Wide WIDE[] = {
    {"hidden/channel_absmax", "layer,hidden_channel", "hidden-channels.png",
     "Largest hidden state of every channel", "max |x| over all tokens, after every layer",
     "channel", "Heatmap of the largest hidden state, layer by channel, one panel a model.",
     "Each column is one channel of the hidden state, each row one layer. A bright vertical "
     "line is an outlier channel: it is large in layer after layer, and one scale for the "
     "whole tensor must stretch to hold it. Where a picture has fewer columns than the model "
     "has channels, neighbours are joined and the largest stands for them."},
    {"hidden/position_absmax", "layer,position", "hidden-positions.png",
     "Largest hidden state at every position", "max |x| over all channels and windows",
     "position in the window",
     "Heatmap of the largest hidden state, layer by position, one panel a model.",
     "The same values by their place in the window. A bright line at the left edge is the "
     "first token: many models park very large values there."},
};

static Status draw_wide(FigureWork *w, const Wide *wide)
{
    Panels p = {.work = w};
    for (int i = 0; i < w->n_sets; i++) {
        const Series *s = series_find_dims(&w->sets[i], wide->series, wide->dims);
        if (s)
            TRY(add_panel(&p, w->sets[i].model, s, 0, s->shape[1], 1, s->shape[0], s->shape[1]));
    }
    if (p.n == 0)
        return OK;
    Heatmap h = {.title = wide->title, .subtitle = wide->subtitle, .x_label = wide->x_label,
                 .y_label = "layer", .value_label = "largest |hidden state|",
                 .scale = fit_scale(&p, true, false, 4), .columns = 1};
    return finish(&p, &h, wide->file, wide->alt, wide->caption);
}

/* --- whole maps of one head --- */

int64_t figures_map_head(const SeriesSet *set, int64_t map_head)
{
    const Series *maps = series_find_dims(set, "maps/weights", "head,map,query,key");
    const Series *gone = series_find_dims(set, "attention/cancelled", "layer,head");
    const Attr *layer = series_attr(set, "maps_layer");
    int64_t heads = maps ? maps->shape[0] : 0, best = 0;
    if (map_head >= 0 || heads == 0)
        return map_head < 0 ? 0 : i64_max(0, i64_min(map_head, heads - 1));
    for (int64_t h = 1; gone && layer && h < heads; h++)
        if (series_get(gone, layer->integer, h, 0) > series_get(gone, layer->integer, best, 0))
            best = h;
    return best;
}

/* A token as an axis can show it: one line, not too long. */
static const char *token_label(Arena *a, const char *token)
{
    char text[64];
    int n = 0, chars = 0;
    while (*token == ' ')
        token++;
    for (; *token && n < 48; token++) {
        unsigned char c = (unsigned char)*token;
        chars += (c & 0xc0) != 0x80;
        if (chars > NAME_CHARS) {
            n += sprintf(text + n, "…");
            break;
        }
        if (c < 0x20 || c == 0x7f)
            n += sprintf(text + n, c == '\n' ? "↵" : "·");
        else
            text[n++] = (char)c;
    }
    return n ? arena_text(a, text, (size_t)n) : arena_text(a, "␣", strlen("␣"));
}

/* Names of n tokens, or NULL where not all are known. */
static Status token_labels(FigureWork *w, const SeriesSet *set, int64_t n,
                           const char *const **out)
{
    const char **names;
    *out = NULL;
    ARENA_NEW(names, &w->scratch, n);
    for (int64_t i = 0; i < n; i++) {
        const char *token = table_attr_part(&w->scratch, set, "maps_tokens", '\x1f', i);
        if (!token)
            return OK;
        names[i] = token_label(&w->scratch, token);
        if (!names[i])
            FAIL(ERR_MEMORY, "out of memory: names of tokens");
    }
    *out = names;
    return OK;
}

static Status add_maps(Panels *p, const SeriesSet *set, int64_t map_head)
{
    const Series *s = series_find_dims(set, "maps/weights", "head,map,query,key");
    const Series *d = series_find_dims(set, "maps/diff", "head,query,key");
    const char *const *names;
    Arena *a = &p->work->scratch;
    if (!s || s->shape[0] < 1)
        return OK;
    int64_t head = figures_map_head(set, map_head), maps = s->shape[1], q = s->shape[2],
            k = s->shape[3], begin = p->n;
    TRY(token_labels(p->work, set, k, &names));
    for (int64_t m = 0; m < maps; m++) {
        const char *title = maps == 1 ? set->model
                                      : arena_printf(a, "%s: map %lld", set->model,
                                                     (long long)m + 1);
        TRY(add_panel(p, title, s, (head * maps + m) * q * k, k, 1, q, k));
    }
    if (d && head < d->shape[0] && d->shape[1] == q && d->shape[2] == k)
        TRY(add_panel(p, arena_printf(a, "%s: map 1 − λ · map 2", set->model), d, head * q * k,
                      k, 1, q, k));
    for (int64_t i = begin; i < p->n; i++)
        p->at[i].names = names;
    return OK;
}

static const char *maps_subtitle(FigureWork *w, int64_t map_head)
{
    TextBuf b;
    textbuf_init(&b, &w->scratch);
    textbuf_add(&b, "one passage, ");
    const char *join = "";
    for (int i = 0; i < w->n_sets; i++) {
        const Attr *layer = series_attr(&w->sets[i], "maps_layer");
        if (!series_find_dims(&w->sets[i], "maps/weights", "head,map,query,key"))
            continue;
        textbuf_printf(&b, "%s%s: layer %lld, head %lld", join, w->sets[i].model,
                       layer ? (long long)layer->integer : 0,
                       (long long)figures_map_head(&w->sets[i], map_head));
        join = "; ";
    }
    return b.at;
}

static Status draw_maps(FigureWork *w, int64_t map_head)
{
    Panels p = {.work = w};
    for (int i = 0; i < w->n_sets; i++)
        TRY(add_maps(&p, &w->sets[i], map_head));
    if (p.n == 0)
        return OK;
    Heatmap h = {.title = "Attention of one head, token by token",
                 .subtitle = maps_subtitle(w, map_head), .x_label = "key (attended to)",
                 .y_label = "query (attending)", .value_label = "attention weight",
                 .causal = true,
                 .zero_label = "later tokens, hidden from earlier ones",
                 .scale = fit_scale(&p, true, false, 3), .square = true,
                 .columns = p.n == 4 ? 2 : (int)i64_min(p.n, 3)};
    return finish(&p, &h, "attention-maps.png",
                  "Heatmaps of attention weights, query by key, for the maps of one head.",
                  "How much each token (row) attends to each earlier token (column). A "
                  "differential head computes two maps and subtracts the second, times λ, from "
                  "the first: what both share cancels, and what is left may be negative "
                  "(blue). A plain model has one map and no negative weights.");
}

Status figures_draw(Figures *f, Arena *a, const SeriesSet *sets, int n_sets, int64_t map_head,
                    ColorChoice color)
{
    Status s = OK;
    FigureWork w = {.out = f, .arena = a, .sets = sets, .color = color,
                    .n_sets = n_sets < FIGURES_MODELS ? n_sets : FIGURES_MODELS};
    *f = (Figures){0};
    GUARD(font_open(&w.font));
    GUARD(draw_heads(&w));
    GUARD(figure_tails(&w));
    for (int i = 0; i < 2; i++)
        GUARD(draw_wide(&w, &WIDE[i]));
    GUARD(draw_maps(&w, map_head));
    GUARD(figure_accuracy(&w));
    s = figure_perplexity(&w);
out:
    font_close(&w.font);
    arena_close(&w.scratch);
    return s;
}

const Figure *figures_find(const Figures *f, const char *file)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->at[i].file, file) == 0)
            return &f->at[i];
    return NULL;
}
