/* report.h - pictures and the page of a study, from its SeriesSets alone.
 * Works for one model or several; what was not measured is left out. */
#ifndef DQ_REPORT_H
#define DQ_REPORT_H

#include "analysis/series.h"

typedef struct {
    const char *title;      // NULL: made from the models' names
    const char *command;    // command line of the run, NULL: not shown
    const char *h5_name;    // file name of the statistics as the page names it,
                            // relative to the page; NULL: that part is left out
    const char *version;    // NULL: DQ_VERSION
    const char *color;      // of heatmaps: "linear" or "log" for all; NULL: as suits each
    int64_t     map_head;   // head whose maps are drawn; -1: chosen, and named
} ReportOptions;

typedef struct {
    int          n;
    const char **paths;     // folder/name, page first; live in the arena
} ReportFiles;

/* Makes the folder, writes index.html and the PNG files into it, each whole or
 * not at all, the page last. 1 to 8 models, else ERR_RANGE. files may be NULL.
 * ERR_IO, ERR_MEMORY. */
MUST_USE Status report_write(Arena *a, const char *folder, const SeriesSet *sets, int n_sets,
                             const ReportOptions *options, ReportFiles *files);

#endif
