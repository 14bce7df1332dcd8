/* verbs.h - one function a verb; each prints its own results. */
#ifndef DQ_VERBS_H
#define DQ_VERBS_H

#include "reports/cli/session.h"
#include "reports/report.h"

MUST_USE Status verb_inspect(Session *se);
MUST_USE Status verb_analyze(Session *se);
MUST_USE Status verb_compare(Session *se);
MUST_USE Status verb_eval(Session *se);
MUST_USE Status verb_quantize(Session *se);
MUST_USE Status verb_convert(Session *se);
MUST_USE Status verb_report(Session *se);
MUST_USE Status verb_generate(Session *se);

/* A line for each model that has layers without attention. */
void session_silent_layers(const SeriesSet *sets, int n);
/* All tables of a study and what was written, on stdout. h5: path of the statistics, or
 * NULL; files: of the page, or NULL. */
MUST_USE Status session_results(Session *se, const SeriesSet *sets, int n, const char *h5,
                                const ReportFiles *files);

#endif
