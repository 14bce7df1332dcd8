/* figure_curves.c - pictures of curves. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/size.h"
#include "reports/draw/figure_work.h"
#include "reports/draw/lineplot.h"
#include "reports/tables.h"

enum { STEPS_AN_OCTAVE = 16, OCTAVE_STEPS = 300 * STEPS_AN_OCTAVE, MAX_PANELS = 64,
       SHORT_PANEL = 360, ROW_PANELS = 4 };

/* --- how often values are large --- */

static const struct {
    const char *title, *histogram, *dims, *bins, *bin_dim;
} TAILS[] = {
    {"attention logits", "logits/histogram", "layer,map,logits_bin", "logits/bin_value",
     "logits_bin"},
    {"hidden states", "hidden/histogram", "layer,hidden_bin", "hidden/bin_value", "hidden_bin"},
};

/* Step of a magnitude, sixteen an octave, from 2^-160 up. */
static int64_t step_of(double value)
{
    double step = (log2(value) + 160) * STEPS_AN_OCTAVE;
    return step < 0 ? 0 : step >= OCTAVE_STEPS ? OCTAVE_STEPS - 1 : (int64_t)step;
}

/* Share of values in step k or above, at the lower end of every step that holds
 * some. Begins where one value in a hundred is smaller. */
static int tail_points(const double *count, double total, double *x, double *y)
{
    int n = 0;
    double above = total;
    for (int64_t k = 0; k < OCTAVE_STEPS; k++) {
        if (count[k] > 0 && above < 0.99 * total) {
            x[n] = exp2((double)k / STEPS_AN_OCTAVE - 160);
            y[n++] = above / total;
        }
        above -= count[k];
    }
    return n;
}

/* Leaves n = 0 where the set has no such histogram. */
static Status tail_line(FigureWork *w, const SeriesSet *set, int tail, PlotLine *line)
{
    const Series *h = series_find_dims(set, TAILS[tail].histogram, TAILS[tail].dims);
    const Series *bins = series_find_dims(set, TAILS[tail].bins, TAILS[tail].bin_dim);
    double *count, *x, *y, total = 0;
    if (!h || !bins || series_count(bins) == 0 ||
        h->shape[h->n_dims - 1] != series_count(bins))
        return OK;
    ARENA_NEW(count, &w->scratch, OCTAVE_STEPS);
    ARENA_NEW(x, &w->scratch, OCTAVE_STEPS);
    ARENA_NEW(y, &w->scratch, OCTAVE_STEPS);
    int64_t n = series_count(bins);
    for (int64_t i = 0; i < series_count(h); i++) {
        double value = series_at(bins, i % n), here = series_at(h, i);
        count[value > 0 ? step_of(value) : 0] += here;
        total += here;
    }
    line->x = x;
    line->y = y;
    line->n = tail_points(count, total, x, y);
    return OK;
}

Status figure_tails(FigureWork *w)
{
    static PlotLine none;
    PlotLine lines[2][FIGURES_MODELS];
    PlotPanel panels[2];
    LinePlot p = {.title = "How often values are this large",
                  .subtitle = "share of all values whose magnitude is at least x",
                  .x_label = "magnitude", .y_label = "share of values", .x_log = true,
                  .y_log = true, .y_least = NAN, .y_most = 1, .panels = panels};
    Canvas canvas;
    for (int t = 0; t < 2; t++) {
        PlotPanel *panel = &panels[p.n_panels];
        *panel = (PlotPanel){.title = TAILS[t].title, .lines = lines[p.n_panels]};
        for (int i = 0; i < w->n_sets; i++) {
            PlotLine *line = &lines[p.n_panels][panel->n_lines];
            *line = none;
            line->name = w->sets[i].model;
            line->color = i;
            TRY(tail_line(w, &w->sets[i], t, line));
            panel->n_lines += line->n > 0;
        }
        p.n_panels += panel->n_lines > 0;
    }
    if (p.n_panels == 0)
        return OK;
    p.columns = p.n_panels;
    TRY(lineplot_draw(&canvas, &w->scratch, &w->font, &p));
    return figure_add(w, &canvas, "tails.png",
                      "Curves of the share of values above a magnitude, one line a model.",
                      "Read a curve from left to right: at 10⁻⁶ on the vertical axis, one value "
                      "in a million is at least as large as the magnitude below. The further a "
                      "curve reaches to the right, the larger the outliers, and the coarser the "
                      "steps that 4 bits can take.");
}

/* --- over the bits of the logits --- */

static int64_t n_bits(const FigureWork *w, int i)
{
    const Series *s = series_find_dims(&w->sets[i], "logit_bits", "logit_bits");
    return s ? i64_min(s->shape[0], TABLE_BITS) : 0;
}

/* The places of x: the widths of the model that has most of them. */
static Status bit_steps(FigureWork *w, LinePlot *p)
{
    const char **steps;
    int model = 0;
    for (int i = 1; i < w->n_sets; i++)
        model = n_bits(w, i) > n_bits(w, model) ? i : model;
    const Series *s = series_find(&w->sets[model], "logit_bits");
    p->n_steps = (int)n_bits(w, model);
    ARENA_NEW(steps, &w->scratch, p->n_steps);
    for (int i = 0; i < p->n_steps; i++) {
        double bits = series_at(s, i);
        bool   exact = bits == 16 && p->columns <= 2;   // where there is room to say so
        steps[i] = exact ? "16 (exact)" : arena_printf(&w->scratch, "%.0f", bits);
        if (!steps[i])
            FAIL(ERR_MEMORY, "out of memory: picture of accuracy");
    }
    p->steps = steps;
    return OK;
}

/* Kinds of weights of the model that has most of them. */
static int n_kinds(FigureWork *w, int *model)
{
    int n = 0;
    for (int i = 0; i < w->n_sets; i++) {
        int here = 0;
        while (table_attr_part(&w->scratch, &w->sets[i], "eval_weights", ',', here))
            here++;
        if (here > n) {
            n = here;
            *model = i;
        }
    }
    return n;
}

/* y (and its error) of one model and kind of weights; x are the places. */
static Status bit_line(FigureWork *w, int i, const Series *y, const Series *error, int64_t task,
                       int64_t kind, PlotLine *line)
{
    double *values;
    int64_t n = n_bits(w, i);
    bool    tasks = y->n_dims == 3;
    double  factor = tasks ? 100 : 1;
    ARENA_NEW(values, &w->scratch, 3 * n);
    for (int64_t b = 0; b < n; b++) {
        values[b] = (double)b;
        values[n + b] =
            factor * (tasks ? series_get(y, task, kind, b) : series_get(y, kind, b, 0));
        values[2 * n + b] = factor * series_get(error, task, kind, b);
    }
    *line = (PlotLine){.name = w->sets[i].model, .color = i, .n = (int)n, .x = values,
                       .y = values + n, .error = error ? values + 2 * n : NULL, .marks = true};
    return OK;
}

/* Number of the set's name among those joined in attribute key; -1: not there. */
static int64_t find_name(FigureWork *w, const SeriesSet *set, const char *key, const char *name)
{
    const char *other;
    for (int64_t k = 0; (other = table_attr_part(&w->scratch, set, key, ',', k)); k++)
        if (strcmp(other, name) == 0)
            return k;
    return -1;
}

/* A line for each model that has the task (NULL: perplexity) and the kind of weights. */
static Status cell_panel(FigureWork *w, const char *task, const char *kind, PlotPanel *panel)
{
    PlotLine *lines;
    ARENA_NEW(lines, &w->scratch, w->n_sets);
    *panel = (PlotPanel){.lines = lines};
    for (int i = 0; i < w->n_sets; i++) {
        const SeriesSet *set = &w->sets[i];
        const Series *y = task ? series_find_dims(set, "eval/accuracy", "task,weights,logit_bits")
                               : series_find_dims(set, "eval/perplexity", "weights,logit_bits");
        const Series *e =
            task ? series_find_dims(set, "eval/stderr", "task,weights,logit_bits") : NULL;
        int64_t k = task ? find_name(w, set, "eval_tasks", task) : 0;
        int64_t v = find_name(w, set, "eval_weights", kind);
        if (y && k >= 0 && v >= 0 && n_bits(w, i) > 0)
            TRY(bit_line(w, i, y, e, k, v, &lines[panel->n_lines++]));
    }
    return OK;
}

static bool has_points(const PlotPanel *panel)
{
    for (int k = 0; k < panel->n_lines; k++)
        for (int i = 0; i < panel->lines[k].n; i++)
            if (isfinite(panel->lines[k].y[i]))
                return true;
    return false;
}

/* A panel for each kind of weights of one task, or of the perplexity; added to p's. */
static Status add_panels(FigureWork *w, LinePlot *p, PlotPanel *panels, const char *task)
{
    int model = 0, n = n_kinds(w, &model);
    for (int v = 0; v < n && p->n_panels < MAX_PANELS; v++) {
        const char *kind =
            table_attr_part(&w->scratch, &w->sets[model], "eval_weights", ',', v);
        PlotPanel  *panel = &panels[p->n_panels];
        TRY(cell_panel(w, task, kind, panel));
        bool named = v > 0 && n <= ROW_PANELS;   // by the first of its row
        panel->title = !task   ? n > 1 ? kind : NULL
                       : named ? kind
                       : n > 1 ? arena_printf(&w->scratch, "%s, %s", task, kind)
                               : task;
        if (task && !panel->title)
            FAIL(ERR_MEMORY, "out of memory: picture of accuracy");
        p->n_panels += has_points(panel);
    }
    return OK;
}

/* Kinds of weights stand side by side, tasks below each other; where there is one kind,
 * tasks stand side by side. */
static void set_columns(FigureWork *w, LinePlot *p)
{
    int model = 0, n = n_kinds(w, &model);
    int64_t most = n > 1 ? i64_min(n, ROW_PANELS) : 2;
    p->columns = (int)i64_min(p->n_panels, most);
    p->height = n > 1 ? SHORT_PANEL : 0;
}

Status figure_accuracy(FigureWork *w)
{
    PlotPanel panels[MAX_PANELS];
    LinePlot p = {.title = "Accuracy over the bits of the attention logits",
                  .subtitle = "bars: one standard error", .x_label = "bits of the logits",
                  .y_label = "accuracy, %", .y_least = 0, .y_most = 100, .y_span = 20,
                  .panels = panels};
    Canvas canvas;
    TaskNames tasks;
    table_tasks(&tasks, &w->scratch, w->sets, w->n_sets);
    for (int i = 0; i < tasks.n; i++)
        TRY(add_panels(w, &p, panels, tasks.name[i]));
    if (p.n_panels == 0)
        return OK;
    set_columns(w, &p);
    TRY(bit_steps(w, &p));
    TRY(lineplot_draw(&canvas, &w->scratch, &w->font, &p));
    return figure_add(w, &canvas, "accuracy.png",
                      "Lines of accuracy over 16, 8, 6 and 4 bits, one line a model, a panel "
                      "for each task and kind of weights.",
                      "The attention logits are rounded to fewer and fewer bits on the way to "
                      "the right; within a panel nothing else changes. A model whose logits "
                      "have large outliers must take coarse steps, and loses earlier. Where "
                      "bars overlap, the difference may be chance: the tests below compare item "
                      "by item.");
}

static void find_range(const LinePlot *p, double *least, double *most)
{
    *least = INFINITY;
    *most = 0;
    for (int i = 0; i < p->n_panels; i++)
        for (int k = 0; k < p->panels[i].n_lines; k++)
            for (int b = 0; b < p->panels[i].lines[k].n; b++) {
                *least = fmin(*least, p->panels[i].lines[k].y[b]);
                *most = fmax(*most, p->panels[i].lines[k].y[b]);
            }
}

Status figure_perplexity(FigureWork *w)
{
    PlotPanel panels[MAX_PANELS];
    double least, most;
    Canvas canvas;
    LinePlot p = {.title = "Perplexity over the bits of the attention logits",
                  .subtitle = "lower is better", .x_label = "bits of the logits",
                  .y_label = "perplexity", .y_most = NAN, .panels = panels};
    TRY(add_panels(w, &p, panels, NULL));
    if (p.n_panels == 0)
        return OK;
    find_range(&p, &least, &most);
    p.y_log = most > 4 * least && least > 0;
    p.y_least = least > 0 ? 1 : 0;
    set_columns(w, &p);
    TRY(bit_steps(w, &p));
    TRY(lineplot_draw(&canvas, &w->scratch, &w->font, &p));
    return figure_add(w, &canvas, "perplexity.png",
                      "Lines of perplexity over 16, 8, 6 and 4 bits, one line a model, a panel "
                      "for each kind of weights.",
                      "Perplexity of the text under the same rounding: how many words the model "
                      "is, so to say, still choosing between. It needs no task and reacts to "
                      "small losses.");
}
