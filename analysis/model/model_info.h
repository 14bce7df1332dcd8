/* model_info.h - what a source tells about itself, for inspect and for loading. */
#ifndef DQ_MODEL_INFO_H
#define DQ_MODEL_INFO_H

#include "analysis/model/source.h"

/* info keeps s->checkpoint, which s still owns. ERR_RANGE for a lambda. */
MUST_USE Status model_info_fill(ModelInfo *info, Arena *a, const Source *s);

/* m with all that info tells, and no weights. */
void model_of_info(Model *m, const ModelInfo *info, Backend *be, Dtype dtype);

#endif
