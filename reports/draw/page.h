/* page.h - the study as one HTML page that needs nothing beside it: pictures
 * inlined, no script, no network. */
#ifndef DQ_PAGE_H
#define DQ_PAGE_H

#include "reports/draw/figures.h"
#include "reports/report.h"
#include "analysis/textbuf.h"

/* Writes the whole page into b. */
MUST_USE Status page_write(TextBuf *b, Arena *a, const SeriesSet *sets, int n_sets,
                           const Figures *figures, const ReportOptions *options);

/* --- page_words.c: what the figures say, as list items --- */

/* Which model has the larger outliers, by what ratio. */
void page_outlier_words(TextBuf *b, const SeriesSet *sets, int n_sets);
/* How many of its channels and values the usual definitions call outliers. */
void page_definition_words(TextBuf *b, const SeriesSet *set);
/* What the fewest bits cost each model, and whether that is beyond noise. */
MUST_USE Status page_cost_words(TextBuf *b, Arena *a, const SeriesSet *sets, int n_sets);

extern const char PAGE_STYLE[];   // page_style.c

#endif
