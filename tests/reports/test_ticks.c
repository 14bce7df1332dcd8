/* test_ticks.c - round numbers on axes. */
#include "reports/draw/ticks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"

/* The texts joined by blanks. */
static const char *joined(const Ticks *t)
{
    static char text[1024];
    text[0] = 0;
    for (int i = 0; i < t->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                 t->text[i]);
    return text;
}

TEST(linear_steps_are_1_2_or_5)
{
    Ticks t;
    ticks_linear(&t, 0, 10, 6);
    T_TEXT(joined(&t), "0 2 4 6 8 10");
    ticks_linear(&t, 0, 318, 8);
    T_TEXT(joined(&t), "0 50 100 150 200 250 300");
    ticks_linear(&t, -0.12, 0.31, 5);
    T_TEXT(joined(&t), "-0.1 0.0 0.1 0.2 0.3");
    ticks_linear(&t, 17.2, 17.4, 5);
    T_TEXT(joined(&t), "17.20 17.25 17.30 17.35 17.40");
}

TEST(logarithmic_steps_thin_out)
{
    Ticks t;
    ticks_log(&t, 1, 100, 10);
    T_TEXT(joined(&t), "1 2 5 10 20 50 100");
    ticks_log(&t, 0.5, 2000, 8);
    T_TEXT(joined(&t), "1 3 10 30 100 300 1000");
    ticks_log(&t, 1e-9, 1, 8);
    T_TEXT(joined(&t), "10⁻⁹ 10⁻⁷ 10⁻⁵ 0.001 0.1");
    ticks_log(&t, 3, 3.5, 8);
    T_TEXT(joined(&t), "3.0 3.1 3.2 3.3 3.4 3.5");
    ticks_log(&t, 1e-30, 1e30, 10);
    T_OK(t.n >= 5 && t.n <= 10);
}

TEST(indices_are_whole_and_begin_at_0)
{
    Ticks t;
    ticks_index(&t, 1, 10);
    T_TEXT(joined(&t), "0");
    ticks_index(&t, 6, 10);
    T_TEXT(joined(&t), "0 1 2 3 4 5");
    ticks_index(&t, 4096, 10);
    T_TEXT(joined(&t), "0 500 1000 1500 2000 2500 3000 3500 4000");
    ticks_index(&t, 1000000, 0);
    T_OK(t.n >= 1);
}

TEST(ranges_of_all_kinds_give_ordered_ticks_inside)
{
    uint64_t seed = 3;
    for (int i = 0; i < 3000; i++) {
        double lo = pow(10, 12 * check_uniform(&seed));
        double hi = lo * (1 + pow(10, 4 * check_uniform(&seed)));
        int most = 2 + i % 20;
        for (int kind = 0; kind < 2; kind++) {
            Ticks t;
            (kind ? ticks_log : ticks_linear)(&t, lo, hi, most);
            T_OK(t.n <= (most < 2 ? 2 : most));
            for (int k = 0; k < t.n; k++) {
                T_OK(t.at[k] >= lo * (1 - 1e-6) && t.at[k] <= hi * (1 + 1e-6));
                T_OK(k == 0 || t.at[k] > t.at[k - 1]);
            }
        }
    }
}

TEST(empty_and_broken_ranges_do_no_harm)
{
    Ticks t;
    ticks_linear(&t, 3, 3, 8);
    T_OK(t.n == 1);
    ticks_linear(&t, 0, INFINITY, 8);
    T_OK(t.n == 1);
    ticks_linear(&t, NAN, 1, 8);
    T_OK(t.n == 1);
}
