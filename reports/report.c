/* report.c - draws the figures, then writes pictures and page into a folder. */
#include "reports/report.h"

#include "reports/draw/figures.h"
#include "reports/draw/page.h"
#include "reports/outfile.h"
#include "reports/textbuf.h"

/* Name of a file in the folder, kept in the list. */
static Status file_path(const char **path, Arena *a, const char *folder, const char *name)
{
    *path = arena_printf(a, "%s/%s", folder, name);
    if (!*path)
        FAIL(ERR_MEMORY, "out of memory: name of %s", name);
    return OK;
}

/* The page comes last: where it stands, its pictures stand beside it. */
static Status write_files(Arena *a, const char *folder, const Figures *figures,
                          const TextBuf *page, ReportFiles *files)
{
    ARENA_NEW(files->paths, a, figures->n + 1);
    TRY(outfile_folder(a, folder));
    for (int i = 0; i < figures->n; i++) {
        const Figure *f = &figures->at[i];
        TRY(file_path(&files->paths[i + 1], a, folder, f->file));
        TRY(outfile_save(a, files->paths[i + 1], f->png.data, f->png.size));
    }
    TRY(file_path(&files->paths[0], a, folder, "index.html"));
    TRY(outfile_save(a, files->paths[0], page->at, page->n));
    files->n = figures->n + 1;
    return OK;
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
    GUARD(figures_draw(&figures, &scratch, sets, n_sets, options->map_head));
    GUARD(page_write(&page, &scratch, sets, n_sets, &figures, options));
    s = write_files(a, folder, &figures, &page, files ? files : &unwanted);
out:
    arena_close(&scratch);
    return s;
}
