/* budget.h - which width each matrix gets so that the whole fits and the measured
 * error is least: a multiple-choice knapsack. */
#ifndef DQ_BUDGET_H
#define DQ_BUDGET_H

#include <stdint.h>

#include "kernels/arena.h"

enum { BUDGET_CHOICES = 3 };

/* One thing to decide: bytes and error of each choice, finite and >= 0. Bytes grow
 * from one choice to the next. */
typedef struct {
    double bytes[BUDGET_CHOICES];
    double error[BUDGET_CHOICES];
} BudgetItem;

/* choice[n]: sum of bytes <= budget, sum of errors least, exactly so where the budget
 * is at most BUDGET_UNITS bytes; above, bytes count in units of budget / BUDGET_UNITS,
 * rounded up, and what that leaves over is given to the item that gains most.
 * ERR_RANGE where not even the first choices fit: the sentence has both sizes. */
enum { BUDGET_UNITS = 1 << 16 };
MUST_USE Status budget_solve(int *choice, Arena *scratch, const BudgetItem *items, int64_t n,
                             double budget);

#endif
