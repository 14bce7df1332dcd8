/* grid_extras.c - what is measured of the unquantized model alone: outliers, attention to
 * needles. Kept in OUT/cells for a resumed run. */
#include <string.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "kernels/outfile.h"
#include "reports/cli/grid.h"
#include "reports/h5.h"

/* --- measuring --- */

/* The pass over the text and the first task with records on found what the unquantized cell
 * asks for: where it was made in this run, the cell takes it. */
static Status give(GridModel *m, const Perplexity *p, const uint8_t *correct, int64_t n_nan)
{
    if (!m->has_study)
        return OK;
    TRY(study_give_text(&m->study, p));
    return correct ? study_give(&m->study, 0, correct, n_nan) : OK;
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
    int64_t    n_nan = 0;
    o.marked_nan = &n_nan;
    if (marked)
        ARENA_NEW(o.marked_correct, &m->arena, m->files[0].n);
    if (!g->record)
        return analyze_describe(&m->set, &l->model, g->with_text ? &m->text : NULL, &o);
    TRY(analyze_run(&m->set, &p, &l->model, m->reader.tokenizer, &m->text, &o));
    return give(m, &p, o.marked_correct, n_nan);
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
    int64_t  n_nan;
    if (!m->needles.n)
        return OK;
    TRY(needles_correct(&correct, &n_nan, &m->arena, &m->needles, &m->set));
    return study_give(&m->study, m->n_files - 1, correct, n_nan);
}

/* --- keeping --- */

/* Where it is, what it hangs on, and the file beside it with the hash of its bytes. */
typedef struct {
    const char *path, *settings, *sum;
} Kept;

/* The settings of the cells, and those that only the extras hang on. */
static Status settings_of(const char **out, Grid *g, GridModel *m)
{
    *out = arena_printf(&m->arena, "%soutliers %s, --maps-layer %lld\n", m->settings,
                        g->record ? "recorded" : "not recorded",
                        (long long)g->se->s.maps_layer);
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory for the settings");
}

/* HDF5 takes bytes as they come: a flipped bit would be a figure like any other. */
static Status sum_of(const char **text, GridModel *m, const char *path)
{
    uint64_t hash;
    TRY(grid_hash(&hash, path));
    *text = arena_printf(&m->arena, "%016llx\n", (unsigned long long)hash);
    return *text ? OK : STATUS(ERR_MEMORY, "out of memory for a file's hash");
}

static Status check_sum(GridModel *m, const Kept *k)
{
    const char *now;
    FileMap     was;
    TRY(sum_of(&now, m, k->path));
    TRY(filemap_open(&was, k->sum));
    bool same = was.size == strlen(now) && memcmp(was.data, now, was.size) == 0;
    filemap_close(&was);
    if (!same)
        FAIL(ERR_FORMAT, "%s: its figures are not whole: remove it, they are measured again",
             k->path);
    return OK;
}

/* Takes the set as the file has it, so that a fresh run and a resumed one go on alike:
 * series come back in the order of their names. */
static Status read_back(Grid *g, GridModel *m, const Kept *k)
{
    SeriesSet  *sets, root;
    int         n;
    const char *path = k->path;
    TRY(check_sum(m, k));
    TRY(h5_read(&g->se->arena, path, &sets, &n, &root));
    const Attr *was = series_attr(&root, "settings");
    if (n != 1 || !was || was->kind != ATTR_TEXT)
        FAIL(ERR_FORMAT, "%s: is not of this program's making", path);
    TRY(study_same(path, was->text, strlen(was->text), k->settings));
    const char *name = m->set.model;
    m->set = sets[0];
    m->set.model = name;
    return OK;
}

static Status keep(Kept *k, Grid *g, GridModel *m)
{
    TRY(settings_of(&k->settings, g, m));
    TRY(grid_path(&k->path, g, m, "cells", ".h5"));
    return grid_path(&k->sum, g, m, "cells", ".h5.sum");
}

static Status take_device(Grid *g, const GridModel *m)
{
    const Attr *device = series_attr(&m->set, "device");
    g->device = device && device->kind == ATTR_TEXT ? device->text : "cpu";
    return OK;
}

Status grid_extras_load(bool *done, Grid *g, GridModel *m)
{
    Kept k;
    *done = false;
    if (!g->folder)
        return OK;
    TRY(keep(&k, g, m));
    if (!g->se->s.resume)
        unlink(k.sum);
    if (access(k.path, F_OK) != 0 || access(k.sum, F_OK) != 0)
        return OK;
    TRY(read_back(g, m, &k));
    *done = true;
    return take_device(g, m);
}

Status grid_extras_run(Grid *g, GridModel *m, Loaded *l)
{
    Kept      k;
    SeriesSet root;
    TRY(measure(g, m, l));
    TRY(take_device(g, m));
    if (!g->folder)
        return OK;
    TRY(keep(&k, g, m));
    series_set_init(&root, &m->arena, "");
    TRY(series_attr_text(&root, "settings", k.settings));
    unlink(k.sum);   // it comes last: a file without is not taken up
    TRY(h5_write(&m->arena, k.path, &m->set, 1, &root));
    const char *sum;
    TRY(sum_of(&sum, m, k.path));
    TRY(outfile_save(&m->arena, k.sum, sum, strlen(sum)));
    return read_back(g, m, &k);
}
