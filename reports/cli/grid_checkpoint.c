/* grid_checkpoint.c - a model as a specification says: rounded while it loads, or loaded
 * from a checkpoint that is made once. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "kernels/outfile.h"
#include "reports/cli/grid.h"

#define SMOOTH_ALPHA 0.5   // what SmoothQuant's authors use

static void draw_layers(void *context, int64_t done, int64_t total, const char *what)
{
    bar_show(context, what, "layers", done, total);
}

static QuantizeOptions options_of(Grid *g, GridModel *m, const Spec *s, const char *out)
{
    bool stored = s->scheme.scale != DTYPE_F16;   // said so; else as the checkpoint
    return (QuantizeOptions){
        .model = m->path, .out = out, .format = "compressed-tensors", .scheme = s->scheme,
        .rotate = s->rotate, .awq = s->awq, .smooth = s->smooth ? SMOOTH_ALPHA : 0,
        .seed = (uint64_t)g->se->s.seed, .dtype = stored ? s->scheme.scale : N_DTYPES,
        .note_seconds = 2, .resume = g->se->s.resume, .overwrite = true,
        .text = s->needs_text ? &m->calibration.seq : NULL,
        .text_name = m->calibration_name,
    };
}

static Status quantize(Grid *g, GridModel *m, const Spec *s, const char *out)
{
    Backend         be;
    QuantizeResult  r;
    Progress        layers = {draw_layers, &g->se->bar};
    QuantizeOptions o = options_of(g, m, s, out);
    session_say(g->se, "%s: making %s", m->name, out);
    TRY(session_backend(&be, g->se));
    o.backend = &be;
    o.progress = &layers;
    Status status = quantize_run(&r, &m->arena, &o);
    backend_close(&be);
    return status;
}

/* Is a checkpoint there that this run, before it was broken off, made whole? */
static Status is_made(bool *made, Grid *g, GridModel *m, const char *note, const char *out)
{
    FileMap map;
    *made = false;
    if (!g->se->s.resume || access(note, F_OK) != 0 || access(out, F_OK) != 0)
        return OK;
    TRY(filemap_open(&map, note));
    Status s = study_same(note, (const char *)map.data, map.size, m->settings);
    filemap_close(&map);
    *made = s == OK;
    return s;
}

static Status checkpoint_path(const char **out, Grid *g, GridModel *m, int i)
{
    const char *what = arena_printf(&m->arena, "-%s", g->names[i]);
    if (!what)
        FAIL(ERR_MEMORY, "out of memory for the name of a checkpoint");
    return grid_path(out, g, m, "checkpoints", what);
}

Status grid_checkpoints_try(Grid *g, GridModel *m)
{
    for (int i = 1; i < g->n_specs; i++) {
        const char *path;
        struct stat st;
        if (g->specs[i].in_memory)
            continue;
        TRY(checkpoint_path(&path, g, m, i));
        if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
            FAIL(ERR_IO, "%s: is a file, expected a checkpoint's folder or nothing", path);
    }
    return OK;
}

/* The note goes before the checkpoint is replaced and comes after it is whole. */
static Status make(const char **out, Grid *g, GridModel *m, int i)
{
    const char *what = arena_printf(&m->arena, "-%s.made", g->names[i]);
    const char *note;
    bool        made;
    if (!what)
        FAIL(ERR_MEMORY, "out of memory for the name of a checkpoint");
    TRY(checkpoint_path(out, g, m, i));
    TRY(grid_path(&note, g, m, "cells", what));
    TRY(is_made(&made, g, m, note, *out));
    if (made)
        return OK;
    unlink(note);
    TRY(quantize(g, m, &g->specs[i], *out));
    return outfile_save(&m->arena, note, m->settings, strlen(m->settings));
}

Status grid_load(Loaded *l, Grid *g, GridModel *m, int i)
{
    const Spec *s = &g->specs[i];
    const char *path;
    char        scheme[SCHEME_TEXT];
    if (s->in_memory)
        return loaded_open(l, g->se, m->path, scheme_text(&s->scheme, scheme), false);
    TRY(make(&path, g, m, i));
    return loaded_open(l, g->se, path, "fp", false);
}
