/* figure_curves.c - pictures of curves. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/size.h"
#include "reports/draw/figure_work.h"
#include "reports/draw/lineplot.h"
#include "reports/tables.h"

enum { STEPS_AN_OCTAVE = 16, OCTAVE_STEPS = 300 * STEPS_AN_OCTAVE, MAX_PANELS = 16 };

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
        steps[i] = bits == 16 ? "16 (exact)" : arena_printf(&w->scratch, "%.0f", bits);
        if (!steps[i])
            FAIL(ERR_MEMORY, "out of memory: picture of accuracy");
    }
    p->steps = steps;
    return OK;
}

/* The lines are those of the first kind of weights: the subtitle says so where
 * there are more. */
static Status name_weights(FigureWork *w, LinePlot *p)
{
    for (int i = 0; i < w->n_sets; i++) {
        if (!table_attr_part(&w->scratch, &w->sets[i], "eval_weights", ',', 1))
            continue;
        const char *first = table_attr_part(&w->scratch, &w->sets[i], "eval_weights", ',', 0);
        p->subtitle = arena_printf(&w->scratch, "weights: %s; %s", first, p->subtitle);
        if (!p->subtitle)
            FAIL(ERR_MEMORY, "out of memory: picture of accuracy");
        return OK;
    }
    return OK;
}

/* y (and its error) of one model; x are the places. factor: 100 for per cent. */
static Status bit_line(FigureWork *w, int i, const Series *y, const Series *error, int64_t task,
                       double factor, PlotLine *line)
{
    double *values;
    int64_t n = n_bits(w, i);
    ARENA_NEW(values, &w->scratch, 3 * n);
    for (int64_t b = 0; b < n; b++) {
        bool tasks = y->n_dims == 3;
        values[b] = (double)b;
        values[n + b] = factor * (tasks ? series_get(y, task, 0, b) : series_get(y, 0, b, 0));
        values[2 * n + b] = factor * series_get(error, task, 0, b);
    }
    *line = (PlotLine){.name = w->sets[i].model, .color = i, .n = (int)n, .x = values,
                       .y = values + n, .error = error ? values + 2 * n : NULL, .marks = true};
    return OK;
}

/* Number of the task in the set by its name, -1 where it was not scored. */
static int64_t find_task(FigureWork *w, const SeriesSet *set, const char *name, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const char *other = table_attr_part(&w->scratch, set, "eval_tasks", ',', k);
        if (other && strcmp(other, name) == 0)
            return k;
    }
    return -1;
}

static Status task_panel(FigureWork *w, const char *name, PlotPanel *panel)
{
    PlotLine *lines;
    ARENA_NEW(lines, &w->scratch, w->n_sets);
    *panel = (PlotPanel){.title = name, .lines = lines};
    for (int i = 0; i < w->n_sets; i++) {
        const SeriesSet *set = &w->sets[i];
        const Series *y = series_find_dims(set, "eval/accuracy", "task,weights,logit_bits");
        const Series *e = series_find_dims(set, "eval/stderr", "task,weights,logit_bits");
        int64_t task = y ? find_task(w, set, name, y->shape[0]) : -1;
        if (task >= 0)
            TRY(bit_line(w, i, y, e, task, 100, &lines[panel->n_lines++]));
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

Status figure_accuracy(FigureWork *w)
{
    PlotPanel panels[MAX_PANELS];
    LinePlot p = {.title = "Accuracy over the bits of the attention logits",
                  .subtitle = "bars: one standard error", .x_label = "bits of the logits",
                  .y_label = "accuracy, %", .y_least = 0, .y_most = 100, .y_span = 20,
                  .panels = panels};
    Canvas canvas;
    Table table;
    TRY(table_accuracy(&table, &w->scratch, w->sets, w->n_sets));
    for (int i = 0; i < table.n_columns - 4 && p.n_panels < MAX_PANELS; i++) {
        TRY(task_panel(w, table.columns[3 + i], &panels[p.n_panels]));
        p.n_panels += has_points(&panels[p.n_panels]);
    }
    if (p.n_panels == 0)
        return OK;
    p.columns = (int)i64_min(p.n_panels, 2);
    TRY(bit_steps(w, &p));
    TRY(name_weights(w, &p));
    TRY(lineplot_draw(&canvas, &w->scratch, &w->font, &p));
    return figure_add(w, &canvas, "accuracy.png",
                      "Lines of accuracy over 16, 8, 6 and 4 bits, one line a model.",
                      "The attention logits are rounded to fewer and fewer bits on the way to "
                      "the right; nothing else changes. A model whose logits have large "
                      "outliers must take coarse steps, and loses earlier. Where bars overlap, "
                      "the difference may be chance.");
}

Status figure_perplexity(FigureWork *w)
{
    PlotLine lines[FIGURES_MODELS];
    PlotPanel panel = {.lines = lines};
    double least = INFINITY, most = 0;
    Canvas canvas;
    for (int i = 0; i < w->n_sets; i++) {
        const Series *y = series_find_dims(&w->sets[i], "eval/perplexity", "weights,logit_bits");
        if (!y || n_bits(w, i) == 0)
            continue;
        TRY(bit_line(w, i, y, NULL, 0, 1, &lines[panel.n_lines]));
        for (int k = 0; k < lines[panel.n_lines].n; k++) {
            least = fmin(least, lines[panel.n_lines].y[k]);
            most = fmax(most, lines[panel.n_lines].y[k]);
        }
        panel.n_lines++;
    }
    if (!has_points(&panel))
        return OK;
    LinePlot p = {.title = "Perplexity over the bits of the attention logits",
                  .subtitle = "lower is better", .x_label = "bits of the logits",
                  .y_label = "perplexity", .y_log = most > 4 * least && least > 0,
                  .y_least = least > 0 ? 1 : 0, .y_most = NAN, .n_panels = 1, .columns = 1,
                  .panels = &panel};
    TRY(bit_steps(w, &p));
    TRY(name_weights(w, &p));
    TRY(lineplot_draw(&canvas, &w->scratch, &w->font, &p));
    return figure_add(w, &canvas, "perplexity.png",
                      "Lines of perplexity over 16, 8, 6 and 4 bits, one line a model.",
                      "Perplexity of the text under the same rounding: how many words the model "
                      "is, so to say, still choosing between. It needs no task and reacts to "
                      "small losses.");
}
