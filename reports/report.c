/* report.c - draws the figures, then writes pictures and page into a folder. */
#include "reports/report.h"

#include <string.h>

#include "reports/draw/figures.h"
#include "reports/draw/page.h"
#include "kernels/outfile.h"
#include "analysis/textbuf.h"

/* Name of a file in the folder, kept in the list. */
static Status file_path(const char **path, Arena *a, const char *folder, const char *name)
{
    *path = arena_printf(a, "%s/%s", folder, name);
    if (!*path)
        FAIL(ERR_MEMORY, "out of memory: name of %s", name);
    return OK;
}

/* All are written beside their targets before the first takes its place: where
 * the disk is full no picture is left without its page. The page comes last:
 * where it stands, its pictures stand beside it. */
static Status write_files(Arena *a, const char *folder, const Figures *figures,
                          const TextBuf *page, ReportFiles *files)
{
    Status s = OK;
    OutFile *out;
    int n = figures->n;
    ARENA_NEW(files->paths, a, n + 1);
    ARENA_NEW(out, a, n + 1);
    TRY(outfile_folder(a, folder));
    for (int i = 0; i <= n; i++) {
        const Figure *f = i ? &figures->at[i - 1] : NULL;
        GUARD(file_path(&files->paths[i], a, folder, f ? f->file : "index.html"));
        GUARD(outfile_open(&out[i], a, files->paths[i]));
        GUARD(outfile_write(&out[i], f ? (const void *)f->png.data : page->at,
                            f ? f->png.size : page->n));
    }
    for (int i = n; i >= 0; i--)
        GUARD(outfile_commit(&out[i]));
    files->n = n + 1;
out:
    for (int i = 0; i <= n; i++)
        outfile_close(&out[i]);
    return s;
}

static ColorChoice color_choice(const ReportOptions *o)
{
    if (o->color && strcmp(o->color, "linear") == 0)
        return COLOR_LINEAR;
    return o->color && strcmp(o->color, "log") == 0 ? COLOR_LOG : COLOR_AUTO;
}

Status report_write(Arena *a, const char *folder, const SeriesSet *sets, int n_sets,
                    const ReportOptions *options, ReportFiles *files)
{
    Status s = OK;
    Arena scratch = {0};
    Figures figures;
    TextBuf page;
    ReportFiles unwanted;
    if (n_sets < 1 || n_sets > FIGURES_MODELS)
        FAIL(ERR_RANGE, "%s: a report of %d models, expected 1 to %d", folder, n_sets,
             FIGURES_MODELS);
    textbuf_init(&page, &scratch);
    GUARD(figures_draw(&figures, &scratch, sets, n_sets, options->map_head,
                       color_choice(options)));
    GUARD(page_write(&page, &scratch, sets, n_sets, &figures, options));
    s = write_files(a, folder, &figures, &page, files ? files : &unwanted);
out:
    arena_close(&scratch);
    return s;
}
