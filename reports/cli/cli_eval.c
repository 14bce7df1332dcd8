/* cli_eval.c - diffquant eval: the scores of one model, without recording. */
#include "reports/cli/grid.h"
#include "reports/cli/verbs.h"
#include "reports/h5.h"

/* Into the folder with its page, into the file, or nowhere. */
static Status write_results(Grid *g, ReportFiles *files)
{
    Session      *se = g->se;
    SeriesSet     root;
    ReportOptions o = {.command = se->command, .h5_name = "study.h5", .map_head = -1,
                       .color = se->s.color};
    if (!g->h5)
        return OK;
    TRY(session_root(&root, se, g->device));
    TRY(h5_write(&se->arena, g->h5, g->sets, g->n_models, &root));
    return g->folder ? report_write(&se->arena, g->folder, g->sets, g->n_models, &o, files)
                     : OK;
}

static Status run(Grid *g)
{
    Session    *se = g->se;
    ReportFiles files = {0};
    TRY(grid_run(g));
    TRY(write_results(g, &files));
    bar_clear(&se->bar);
    return session_results(se, g->sets, g->n_models, g->h5, g->folder ? &files : NULL);
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
