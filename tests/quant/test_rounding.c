/* test_rounding.c - what rounding did: sums in lanes, the same with every instruction set. */
#include <math.h>
#include <string.h>

#include "quant/methods/rounding.h"
#include "tests/check.h"
#include "tests/quant/ref_isa.h"

enum { MOST = 100 };

static float w[MOST], v[MOST];

static void fill(void)
{
    uint64_t seed = 5;
    for (int i = 0; i < MOST; i++) {
        w[i] = check_normal(&seed);
        v[i] = w[i] + 0.01f * check_normal(&seed);
    }
}

/* Lanes one by one, as the header says. */
static RoundSums wanted(int n, int times)
{
    RoundSums s = {0};
    for (int k = 0; k < times; k++)
        for (int i = 0; i < n; i++) {
            double d = (double)w[i] - (double)v[i];
            s.error2[i % ROUND_LANES] += d * d;
            s.sum2[i % ROUND_LANES] += (double)w[i] * (double)w[i];
        }
    return s;
}

TEST(lanes_are_those_of_the_header)
{
    CpuIsa isa = N_CPU_ISAS;
    fill();
    while (ref_each_isa(&isa))
        for (int n = 0; n <= MOST; n++) {
            RoundSums s = {0}, want = wanted(n, 2);
            rounding_add(&s, w, v, n);
            rounding_add(&s, w, v, n);
            T_OK(memcmp(&s, &want, sizeof s) == 0);
        }
}

TEST(totals_of_known_numbers)
{
    RoundSums s = {0};
    for (int i = 0; i < MOST; i++) {
        w[i] = (float)(i + 1);
        v[i] = (float)(i + 1) + (i % 2 ? 0.5f : -0.5f);
    }
    rounding_add(&s, w, v, MOST);
    RoundError e = rounding_total(&s);
    T_NEAR(e.error2, MOST * 0.25, 0);
    T_NEAR(e.sum2, MOST * (MOST + 1) * (2 * MOST + 1) / 6.0, 0);
}

TEST(what_is_not_finite_shows)
{
    CpuIsa isa = N_CPU_ISAS;
    while (ref_each_isa(&isa))
        for (int i = 0; i < MOST; i++) {
            RoundSums s = {0};
            fill();
            v[i] = i % 2 ? NAN : INFINITY;
            rounding_add(&s, w, v, MOST);
            T_OK(!isfinite(rounding_total(&s).error2) && isfinite(rounding_total(&s).sum2));
        }
}
