/* test_budget.c - the knapsack against all combinations. */
#include "quant/budget.h"

#include <math.h>

#include "tests/check.h"

enum { MOST = 7 };

/* Least error of all combinations that fit; INFINITY where none does. */
static double by_trying(const BudgetItem *items, int n, double budget)
{
    double best = INFINITY;
    int    all = 1;
    for (int i = 0; i < n; i++)
        all *= BUDGET_CHOICES;
    for (int code = 0; code < all; code++) {
        double bytes = 0, error = 0;
        for (int i = 0, rest = code; i < n; i++, rest /= BUDGET_CHOICES) {
            bytes += items[i].bytes[rest % BUDGET_CHOICES];
            error += items[i].error[rest % BUDGET_CHOICES];
        }
        if (bytes <= budget && error < best)
            best = error;
    }
    return best;
}

static void random_items(BudgetItem *items, int n, double scale, uint64_t *seed)
{
    for (int i = 0; i < n; i++) {
        double size = scale * (1 + floor(50 * (1 + (double)check_uniform(seed))));
        double error = exp(3 * (double)check_normal(seed));
        for (int c = 0; c < BUDGET_CHOICES; c++) {
            items[i].bytes[c] = size * (4 + 2 * c);
            items[i].error[c] = error * exp(-2.0 * c + (double)check_uniform(seed));
        }
    }
}

static void sums(double *bytes, double *error, const int *choice, const BudgetItem *items, int n)
{
    *bytes = *error = 0;
    for (int i = 0; i < n; i++) {
        *bytes += items[i].bytes[choice[i]];
        *error += items[i].error[choice[i]];
    }
}

TEST(least_error_of_all_that_fits)
{
    uint64_t seed = 5;
    Arena    a = {0};
    for (int round = 0; round < 200; round++) {
        BudgetItem items[MOST];
        int        choice[MOST], n = 1 + round % MOST;
        double     bytes, error, least = 0, most = 0;
        random_items(items, n, 1, &seed);
        for (int i = 0; i < n; i++) {
            least += items[i].bytes[0];
            most += items[i].bytes[2];
        }
        double budget = least + (most - least) * (round % 11) / 10.0;
        T_STATUS_OK(budget_solve(choice, &a, items, n, budget));
        sums(&bytes, &error, choice, items, n);
        T_OK(bytes <= budget);
        T_NEAR(error, by_trying(items, n, budget), 1e-12 * error);
    }
    arena_close(&a);
}

/* Gigabytes: units are coarse, the error stays within what a unit an item can cost. */
TEST(large_budgets_are_kept_and_nearly_used)
{
    uint64_t seed = 9;
    Arena    a = {0};
    for (int round = 0; round < 20; round++) {
        BudgetItem items[MOST];
        int        choice[MOST];
        double     bytes, error, least = 0;
        random_items(items, MOST, 1e7 + 1, &seed);
        for (int i = 0; i < MOST; i++)
            least += items[i].bytes[0];
        double budget = least * (1 + 0.05 * round);
        T_STATUS_OK(budget_solve(choice, &a, items, MOST, budget));
        sums(&bytes, &error, choice, items, MOST);
        T_OK(bytes <= budget);
        double slack = MOST * budget / BUDGET_UNITS;
        T_OK(error <= by_trying(items, MOST, budget - slack));
    }
    arena_close(&a);
}

/* Each item a little over 1024 units: rounded down 64 of them would seem to fit. */
TEST(bytes_round_up_to_units)
{
    enum { N = 64 };
    Arena      a = {0};
    BudgetItem items[N];
    int        choice[N];
    double     budget = 1e9 + 7, unit = budget / BUDGET_UNITS, bytes, error;
    double     each = budget / N + 0.9 * unit;
    for (int i = 0; i < N; i++)
        items[i] = (BudgetItem){{each / 2, each, 2 * each}, {3, 1, 0.5}};
    T_STATUS_OK(budget_solve(choice, &a, items, N, budget));
    sums(&bytes, &error, choice, items, N);
    T_OK(bytes <= budget);
    T_NEAR(error, N + 2, 1e-9);
    arena_close(&a);
}

/* One large item and many that take two units for little more than one: in units
 * not all can have what they need, in bytes they can. */
TEST(what_rounding_leaves_is_spent)
{
    enum { N = 64 };
    Arena      a = {0};
    BudgetItem items[N];
    int        choice[N];
    double     budget = 1e9 + 7, unit = budget / BUDGET_UNITS, small = 1.01 * unit;
    double     large = budget - (N - 1) * small - 1;
    for (int i = 0; i < N; i++)
        items[i] = (BudgetItem){{small / 2, small, budget}, {3, 1, 0.5}};
    items[0] = (BudgetItem){{large, budget, budget}, {3, 1, 0.5}};
    T_STATUS_OK(budget_solve(choice, &a, items, N, budget));
    for (int i = 0; i < N; i++)
        T_OK(choice[i] == (i > 0));
    arena_close(&a);
}

TEST(too_small_a_budget_is_refused)
{
    Arena      a = {0};
    int        choice[1];
    BudgetItem item = {{100, 150, 200}, {3, 2, 1}};
    T_FAILS(budget_solve(choice, &a, &item, 1, 99), ERR_RANGE, "100");
    T_FAILS(budget_solve(choice, &a, &item, 1, NAN), ERR_RANGE, "100");
    T_STATUS_OK(budget_solve(choice, &a, &item, 1, 100));
    T_OK(choice[0] == 0);
    T_STATUS_OK(budget_solve(choice, &a, &item, 1, 199.5));
    T_OK(choice[0] == 1);
    T_STATUS_OK(budget_solve(choice, &a, &item, 0, 0));
    arena_close(&a);
}

TEST(no_memory)
{
    BudgetItem item = {{100, 150, 200}, {3, 2, 1}};
    for (int64_t k = 1; k <= 3; k++) {
        Arena a = {0};
        int   choice[1];
        arena_fail_at(k);
        Status s = budget_solve(choice, &a, &item, 1, 100);
        arena_fail_at(0);
        T_OK(s == ERR_MEMORY);
        arena_close(&a);
    }
}
