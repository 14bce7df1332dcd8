/* ref_study.h - made-up results of two models, in the shape analysis gives them.
 * A differential model "Diff-Tiny" and a plain "Base-Tiny" whose logits and
 * hidden states have larger outliers: for tests of reports, and to draw with. */
#ifndef DQ_REF_STUDY_H
#define DQ_REF_STUDY_H

#include "analysis/series.h"

enum {
    REF_LAYERS = 6, REF_HEADS = 4, REF_CHANNELS = 192, REF_POSITIONS = 256, REF_RANKS = 100,
    REF_MAP = 24, REF_BITS = 4, REF_TASKS = 2
};

/* Everything of the study. The sets' memory is a's. */
MUST_USE Status ref_study(Arena *a, SeriesSet sets[2]);
/* One model, measured without scoring and maps. */
MUST_USE Status ref_study_one(Arena *a, SeriesSet *set);

#endif
