/* cli_report.c - diffquant report: page and pictures from stored statistics. */
#include <string.h>

#include "reports/cli/verbs.h"
#include "reports/h5.h"
#include "reports/report.h"

enum { MOST_SETS = 64 };

/* Figures of `quantize --stats` are a table without a picture. */
static Status check_drawable(const char *path, const SeriesSet *sets, int n)
{
    for (int i = 0; i < n; i++)
        if (series_find(&sets[i], "quant/bits"))
            FAIL(ERR_UNSUPPORTED, "%s: nothing to draw: these are figures of quantize, expected "
                 "those of analyze, eval or compare", path);
    return OK;
}

static Status read_all(SeriesSet *sets, int *n, Session *se)
{
    for (int f = 0; f < se->s.inputs.n; f++) {
        SeriesSet *in;
        int        n_in;
        TRY(h5_read(&se->arena, se->s.inputs.at[f], &in, &n_in, NULL));
        TRY(check_drawable(se->s.inputs.at[f], in, n_in));
        if (n_in > MOST_SETS - *n)
            FAIL(ERR_RANGE, "%s: more than %d models in all", se->s.inputs.at[f], MOST_SETS);
        for (int i = 0; i < n_in; i++) {
            sets[*n] = in[i];
            TRY(session_name(&sets[*n].model, se, sets, *n, in[i].model));
            ++*n;
        }
    }
    return OK;
}

Status verb_report(Session *se)
{
    SeriesSet    *sets;
    ReportFiles   files;
    int           n = 0;
    ReportOptions o = {.command = se->command, .map_head = -1,
                       .color = se->s.color};
    if (!se->s.out)
        FAIL(ERR_USAGE, "report needs a folder for its results: --out FOLDER");
    ARENA_NEW(sets, &se->arena, MOST_SETS);
    TRY(read_all(sets, &n, se));
    if (se->s.inputs.n == 1)
        o.h5_name = se->s.inputs.at[0];
    TRY(report_write(&se->arena, se->s.out, sets, n, &o, &files));
    return session_results(se, sets, n, NULL, &files);
}
