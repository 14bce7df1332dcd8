/* rows.h - which rows of which matrix of a checkpoint make a matrix of the canonical form. */
#ifndef DQ_ROWS_H
#define DQ_ROWS_H

#include "analysis/model/config.h"

/* The kinds that a checkpoint's matrix holds, up to 3; returns how many. */
int rows_kinds(WeightKind slot, WeightKind kinds[3]);
/* Rows that a kind (< N_LINEARS) has in canonical form. */
int64_t rows_count(const Config *c, WeightKind kind);
/* Row of the checkpoint's matrix `slot`, which holds it, that becomes row i. */
int64_t rows_source(const Config *c, WeightKind kind, WeightKind slot, int64_t i);
/* Do they lie one after another? Then rows_source(..., 0) is the first. */
bool rows_in_order(const Config *c, WeightKind kind);

/* Canonical order of the heads of q, k or v: head j comes from head rows_head(...) of the
 * checkpoint. */
int64_t rows_head(const Config *c, WeightKind kind, int64_t j);

#endif
