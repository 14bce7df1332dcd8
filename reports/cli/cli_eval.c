/* cli_eval.c - diffquant eval: the scores of one model, without recording. */
#include <string.h>

#include "kernels/outfile.h"
#include "reports/cli/grid.h"
#include "reports/cli/verbs.h"
#include "reports/h5.h"

static const char *const H5_NAME = "study.h5";

/* Into the folder with its page, into the file, or nowhere. */
static Status write_results(Grid *g, ReportFiles *files, const char **h5)
{
    Session      *se = g->se;
    SeriesSet     root;
    ReportOptions o = {.command = se->command, .h5_name = H5_NAME, .map_head = -1,
                       .color = se->s.color};
    *h5 = NULL;
    if (!se->s.out)
        return OK;
    *h5 = g->folder ? arena_printf(&se->arena, "%s/%s", g->folder, H5_NAME) : se->s.out;
    if (!*h5)
        FAIL(ERR_MEMORY, "out of memory for the name of %s", H5_NAME);
    TRY(session_root(&root, se, g->device));
    TRY(h5_write(&se->arena, *h5, g->sets, g->n_models, &root));
    return g->folder ? report_write(&se->arena, g->folder, g->sets, g->n_models, &o, files)
                     : OK;
}

static Status run(Grid *g)
{
    Session    *se = g->se;
    ReportFiles files = {0};
    const char *h5;
    if (se->s.out && !g->folder)
        TRY(outfile_try(&se->arena, se->s.out));
    TRY(grid_run(g));
    TRY(write_results(g, &files, &h5));
    bar_clear(&se->bar);
    return session_results(se, g->sets, g->n_models, h5, g->folder ? &files : NULL);
}

Status verb_eval(Session *se)
{
    Grid   g;
    Status s = grid_open(&g, se, false);
    if (s == OK)
        s = run(&g);
    grid_close(&g);
    return s;
}
