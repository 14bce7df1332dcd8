/* budget.c - dynamic programming over the budget, one item after another.
 *   best[u] = least error of the items so far within u units
 * and for each item and u the choice that gave it. n * BUDGET_UNITS bytes. */
#include "quant/budget.h"

#include <math.h>
#include <string.h>


typedef struct {
    int64_t  units;     // of the budget
    double   unit;      // bytes
    double  *best;      // [units + 1] of the items so far
    double  *next;      // [units + 1] with one more
    uint8_t *taken;     // [n, units + 1]
} Knapsack;

static int64_t units_of(const Knapsack *k, double bytes)
{
    return (int64_t)ceil(bytes / k->unit);
}

static double total_bytes(const int *choice, const BudgetItem *items, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += items[i].bytes[choice ? choice[i] : 0];
    return sum;
}

static void add_item(Knapsack *k, const BudgetItem *item, uint8_t *taken)
{
    for (int64_t u = 0; u <= k->units; u++) {
        k->next[u] = INFINITY;
        for (int c = 0; c < BUDGET_CHOICES; c++) {
            int64_t need = units_of(k, item->bytes[c]);
            if (need > u || !(k->best[u - need] + item->error[c] < k->next[u]))
                continue;
            k->next[u] = k->best[u - need] + item->error[c];
            taken[u] = (uint8_t)c;
        }
    }
    double *best = k->next;
    k->next = k->best;
    k->best = best;
}

/* Units round up, so something may be left: the best single step while one fits. */
static void spend_rest(int *choice, const BudgetItem *items, int64_t n, double budget)
{
    double left = budget - total_bytes(choice, items, n);
    for (;;) {
        int64_t at = -1;
        int     to = 0;
        double  most = 0;
        for (int64_t i = 0; i < n; i++)
            for (int c = choice[i] + 1; c < BUDGET_CHOICES; c++) {
                double gain = items[i].error[choice[i]] - items[i].error[c];
                if (items[i].bytes[c] - items[i].bytes[choice[i]] <= left && gain > most) {
                    most = gain;
                    at = i;
                    to = c;
                }
            }
        if (at < 0)
            return;
        left -= items[at].bytes[to] - items[at].bytes[choice[at]];
        choice[at] = to;
    }
}

/* Rounded up, not even the first choices may fit: then all of the budget is rest. */
static void walk_back(int *choice, const Knapsack *k, const BudgetItem *items, int64_t n)
{
    int64_t u = k->units;
    if (!isfinite(k->best[u])) {
        memset(choice, 0, (size_t)n * sizeof *choice);
        return;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        choice[i] = k->taken[i * (k->units + 1) + u];
        u -= units_of(k, items[i].bytes[choice[i]]);
    }
}

Status budget_solve(int *choice, Arena *scratch, const BudgetItem *items, int64_t n,
                    double budget)
{
    ArenaMark mark = arena_mark(scratch);
    double    least = total_bytes(NULL, items, n);
    if (!(least <= budget))
        FAIL(ERR_RANGE, "a budget of %.0f bytes: the lowest widths take %.0f", budget, least);
    Knapsack k = {.units = (int64_t)floor(fmin(budget, BUDGET_UNITS))};
    k.unit = budget > BUDGET_UNITS ? budget / BUDGET_UNITS : 1;
    ARENA_NEW(k.best, scratch, k.units + 1);   // no items: no error, whatever the units
    ARENA_NEW(k.next, scratch, k.units + 1);
    ARENA_NEW(k.taken, scratch, n * (k.units + 1));
    for (int64_t i = 0; i < n; i++)
        add_item(&k, &items[i], k.taken + i * (k.units + 1));
    walk_back(choice, &k, items, n);
    spend_rest(choice, items, n, budget);
    arena_rewind(scratch, mark);
    return OK;
}
