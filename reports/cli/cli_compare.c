/* cli_compare.c - diffquant compare: the whole study on two or more models; and how the
 * results of a study are told. */
#include <stdio.h>
#include <string.h>

#include "kernels/outfile.h"
#include "reports/cli/grid.h"
#include "reports/cli/verbs.h"
#include "reports/h5.h"
#include "reports/report.h"

static Status write_files(ReportFiles *files, Grid *g)
{
    Session      *se = g->se;
    SeriesSet     root;
    ReportOptions o = {.command = se->command, .h5_name = "study.h5", .map_head = -1,
                       .color = se->s.color};
    TRY(session_root(&root, se, g->device));
    TRY(h5_write(&se->arena, g->h5, g->sets, g->n_models, &root));
    return report_write(&se->arena, se->s.out, g->sets, g->n_models, &o, files);
}

static Status run(Grid *g)
{
    Session    *se = g->se;
    ReportFiles files;
    TRY(grid_run(g));
    TRY(write_files(&files, g));
    bar_clear(&se->bar);
    return session_results(se, g->sets, g->n_models, g->h5, &files);
}

Status verb_compare(Session *se)
{
    Grid g;
    if (!se->s.out)
        FAIL(ERR_USAGE, "compare needs a folder for its results: --out FOLDER");
    Status s = grid_open(&g, se, true);
    if (s == OK && !g.folder)
        s = STATUS(ERR_USAGE, "--out %s: compare writes a folder, not a file", se->s.out);
    if (s == OK)
        s = run(&g);
    grid_close(&g);
    return s;
}

/* --- results --- */

static const struct {
    const char *name;
    Status    (*make)(Table *t, Arena *a, const SeriesSet *sets, int n);
} TABLES[] = {
    {"outliers", table_outliers},       {"accuracy", table_accuracy},
    {"paired", table_paired},           {"versus", table_versus},
    {"needles", table_needles},         {"needles_attention", table_needle_shares},
    {"needles_layers", table_needle_layers}, {"orders", table_orders},
};
enum { N_TABLES = sizeof TABLES / sizeof TABLES[0] };

static Status json_files(Session *se, const char *h5, const ReportFiles *files)
{
    TextBuf b;
    textbuf_init(&b, &se->arena);
    textbuf_add(&b, ", \"files\": [");
    for (int i = 0; files && i < files->n; i++) {
        textbuf_add(&b, i ? ", " : "");
        textbuf_json(&b, files->paths[i]);
    }
    textbuf_add(&b, "], \"h5\": ");
    if (h5)
        textbuf_json(&b, h5);
    else
        textbuf_add(&b, "null");
    TRY(textbuf_status(&b));
    printf("%s}\n", b.at);
    return OK;
}

static void print_files(const char *h5, const ReportFiles *files)
{
    printf(files || h5 ? "\n" : "");
    if (files)
        printf("Page      %s\n", files->paths[0]);
    for (int i = 1; files && i < files->n; i++)
        printf("%s%s\n", i == 1 ? "Pictures  " : "          ", files->paths[i]);
    if (h5)
        printf("HDF5 file %s\n", h5);
}

void session_silent_layers(const SeriesSet *sets, int n)
{
    for (int i = 0; i < n; i++)
        if (table_silent_layers(&sets[i]))
            printf("%s has no attention, and so no logits, in layers %s.\n", sets[i].model,
                   table_silent_layers(&sets[i]));
}

Status session_results(Session *se, const SeriesSet *sets, int n, const char *h5,
                       const ReportFiles *files)
{
    bool any = false;
    for (int i = 0; i < N_TABLES; i++) {
        Table t;
        TRY(TABLES[i].make(&t, &se->arena, sets, n));
        if (t.n_rows == 0 && !(se->s.json && i < 2))
            continue;
        printf("%s", se->s.json ? (any ? ", " : "{") : "\n");
        TRY(session_table(se, TABLES[i].name, &t));
        if (TABLES[i].make == table_outliers && !se->s.json)
            session_silent_layers(sets, n);
        any = true;
    }
    if (se->s.json)
        return json_files(se, h5, files);
    print_files(h5, files);
    return OK;
}
