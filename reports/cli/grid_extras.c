/* grid_extras.c - what is measured of the unquantized model alone: outliers, attention to
 * needles. Kept in OUT/cells for a resumed run. */
#include <string.h>
#include <unistd.h>

#include "kernels/outfile.h"
#include "reports/cli/grid.h"
#include "reports/h5.h"

/* --- measuring --- */

/* The pass over the text and the first task with records on found what the unquantized cell
 * asks for: where it was made in this run, the cell takes it. */
static Status give(GridModel *m, const Perplexity *p, const uint8_t *correct)
{
    if (!m->has_study)
        return OK;
    TRY(study_give_text(&m->study, p));
    return correct ? study_give(&m->study, 0, correct) : OK;
}

static Status analyze(Grid *g, GridModel *m, Loaded *l)
{
    const Settings *s = &g->se->s;
    bool            marked = m->n_files > (m->needles.n > 0);   // by a file of the user's
    AnalyzeOptions  o = {
        .record = true,
        .quant = model_run(&l->model, (RunQuant){.bits = 16}),
        .text_name = m->text_name,
        .maps_layer = s->maps_layer >= 0 ? s->maps_layer : MAPS_LARGEST,
        .marked = marked ? &m->files[0] : NULL,
        .progress = &g->se->progress,
    };
    Perplexity p;
    if (marked)
        ARENA_NEW(o.marked_correct, &m->arena, m->files[0].n);
    if (!g->record)
        return analyze_describe(&m->set, &l->model, g->with_text ? &m->text : NULL, &o);
    TRY(analyze_run(&m->set, &p, &l->model, m->reader.tokenizer, &m->text, &o));
    return give(m, &p, o.marked_correct);
}

static Status run_needles(Grid *g, GridModel *m, Loaded *l)
{
    NeedleScore score;
    Scorer      sc = {.model = &l->model, .what = "needles",
                      .quant = model_run(&l->model, (RunQuant){.bits = 16}),
                      .progress = &g->se->progress,
                      .total = m->needles.episodes.seq.start[m->needles.n]};
    TRY(needles_run(&score, &m->arena, &m->needles, &sc));
    return needles_series(&score, &m->needles, &m->set);
}

static Status measure(Grid *g, GridModel *m, Loaded *l)
{
    TRY(analyze(g, m, l));
    return m->needles.n ? run_needles(g, m, l) : OK;
}

Status grid_extras_give(GridModel *m)
{
    uint8_t *correct;
    if (!m->needles.n)
        return OK;
    TRY(needles_correct(&correct, &m->arena, &m->needles, &m->set));
    return study_give(&m->study, m->n_files - 1, correct);
}

/* --- keeping --- */

/* The settings of the cells, and those that only the extras hang on. */
static Status settings_of(const char **out, Grid *g, GridModel *m)
{
    *out = arena_printf(&m->arena, "%soutliers %s, --maps-layer %lld\n", m->settings,
                        g->record ? "recorded" : "not recorded",
                        (long long)g->se->s.maps_layer);
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory for the settings");
}

/* Takes the set as the file has it, so that a fresh run and a resumed one go on alike:
 * series come back in the order of their names. */
static Status read_back(Grid *g, GridModel *m, const char *path, const char *settings)
{
    SeriesSet *sets, root;
    int        n;
    TRY(h5_read(&g->se->arena, path, &sets, &n, &root));
    const Attr *was = series_attr(&root, "settings");
    if (n != 1 || !was || was->kind != ATTR_TEXT)
        FAIL(ERR_FORMAT, "%s: is not of this program's making", path);
    TRY(study_same(path, was->text, strlen(was->text), settings));
    const char *name = m->set.model;
    m->set = sets[0];
    m->set.model = name;
    return OK;
}

static Status extras_path(const char **path, const char **settings, Grid *g, GridModel *m)
{
    TRY(settings_of(settings, g, m));
    return grid_path(path, g, m, "cells", ".h5");
}

static Status take_device(Grid *g, const GridModel *m)
{
    const Attr *device = series_attr(&m->set, "device");
    g->device = device && device->kind == ATTR_TEXT ? device->text : "cpu";
    return OK;
}

Status grid_extras_load(bool *done, Grid *g, GridModel *m)
{
    const char *path, *settings;
    *done = false;
    if (!g->folder)
        return OK;
    TRY(extras_path(&path, &settings, g, m));
    if (!g->se->s.resume)
        unlink(path);
    if (access(path, F_OK) != 0)
        return OK;
    TRY(read_back(g, m, path, settings));
    *done = true;
    return take_device(g, m);
}

Status grid_extras_run(Grid *g, GridModel *m, Loaded *l)
{
    const char *path, *settings;
    SeriesSet   root;
    TRY(measure(g, m, l));
    TRY(take_device(g, m));
    if (!g->folder)
        return OK;
    TRY(extras_path(&path, &settings, g, m));
    series_set_init(&root, &m->arena, "");
    TRY(series_attr_text(&root, "settings", settings));
    TRY(h5_write(&m->arena, path, &m->set, 1, &root));
    return read_back(g, m, path, settings);
}
