/* left_over.h - tensors of a checkpoint that its architecture has not asked for. */
#ifndef DQ_LEFT_OVER_H
#define DQ_LEFT_OVER_H

#include "analysis/model/source.h"

/* Harmless, or another model than we think: a sentence that says which. */
MUST_USE Status left_over_check(const Source *s, const ModelTensor *t);

#endif
