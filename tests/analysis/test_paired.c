/* test_paired.c - paired tests against sums by hand and against all outcomes. */
#include "analysis/paired.h"

#include <math.h>

#include "tests/check.h"

/* Two answers of n items: `a` only the first got right, `b` only the second, and so on. */
static Paired counted(int64_t both, int64_t a, int64_t b, int64_t neither)
{
    static uint8_t one[20000], two[20000];
    int64_t        n = 0;
    for (int64_t i = 0; i < both; i++, n++)
        one[n] = two[n] = 1;
    for (int64_t i = 0; i < a; i++, n++)
        one[n] = 1, two[n] = 0;
    for (int64_t i = 0; i < b; i++, n++)
        one[n] = 0, two[n] = 1;
    for (int64_t i = 0; i < neither; i++, n++)
        one[n] = two[n] = 0;
    return paired_of(one, two, n);
}

TEST(by_hand)
{
    /* 1 against 5 of 6: 2 (C(6,0) + C(6,1)) / 2^6 = 14 / 64. */
    Paired p = counted(10, 1, 5, 4);
    T_OK(p.n == 20 && p.only_a == 1 && p.only_b == 5);
    T_NEAR(p.p, 14.0 / 64, 1e-15);
    T_NEAR(p.difference, 0.2, 1e-15);
    /* 14 items differ by 0, one by -1, five by 1; the mean is 0.2:
     * 14 * 0.04 + 1.44 + 5 * 0.64 = 5.2; sqrt(5.2 / 19 / 20). */
    T_NEAR(p.error, sqrt(5.2 / 19 / 20), 1e-15);
    T_NEAR(counted(10, 5, 1, 4).difference, -0.2, 1e-15);
    T_NEAR(counted(10, 5, 1, 4).p, 14.0 / 64, 1e-15);
    /* 10 against none: 2 / 2^10. */
    T_NEAR(counted(0, 10, 0, 0).p, 2.0 / 1024, 1e-17);
    T_NEAR(counted(0, 10, 0, 0).error, 0, 0);
}

TEST(no_difference_is_no_evidence)
{
    T_NEAR(counted(7, 0, 0, 3).p, 1, 0);
    T_NEAR(counted(7, 4, 4, 3).p, 1, 0);
    T_NEAR(counted(7, 3, 4, 3).p, 1, 1e-15);
    Paired none = counted(0, 0, 0, 0);
    T_OK(isnan(none.p) && isnan(none.difference) && isnan(none.error));
    Paired one = counted(0, 0, 1, 0);
    T_OK(one.p == 1 && one.difference == 1 && isnan(one.error));
}

/* Every assignment of n coins at least as far from n/2 as what was seen. */
static double brute(int a, int b)
{
    int n = a + b, hits = 0;
    for (int coins = 0; coins < 1 << n; coins++) {
        int heads = __builtin_popcount((unsigned)coins);
        hits += 2 * heads - n >= (a > b ? a - b : b - a) ||
                n - 2 * heads >= (a > b ? a - b : b - a);
    }
    return (double)hits / (1 << n);
}

TEST(all_outcomes_of_small_counts)
{
    for (int a = 0; a <= 8; a++)
        for (int b = 0; b <= 8; b++) {
            double p = counted(3, a, b, 2).p;
            T_NEAR(p, brute(a, b), 1e-12);
        }
}

/* From exact fractions; no underflow at counts whose 2^-n is no number any more. */
TEST(large_counts)
{
    T_NEAR(counted(0, 2000, 2200, 0).p / 0.0021323556719912346, 1, 1e-9);
    T_NEAR(counted(0, 500, 900, 0).p / 6.789454160524368e-27, 1, 1e-9);
    T_OK(counted(0, 0, 5000, 0).p >= 0 && counted(0, 0, 5000, 0).p < 1e-300);
}

TEST(means_of_reals)
{
    static const double a[] = {1, 2, 3, 4}, b[] = {1.5, 2.5, 2.5, 5.5};
    PairedMean m = paired_mean(a, b, 4);
    /* differences .5 .5 -.5 1.5: mean .5; squares sum to 3, deviations to 2. */
    T_NEAR(m.difference, 0.5, 1e-15);
    T_NEAR(m.error, sqrt(2.0 / 3 / 4), 1e-15);
    T_NEAR(m.p, erfc(2 / sqrt(6.0)), 1e-15);
    T_NEAR(paired_mean(b, a, 4).difference, -0.5, 1e-15);
    T_NEAR(paired_mean(a, a, 4).p, 1, 0);
    T_OK(isnan(paired_mean(a, b, 0).p) && isnan(paired_mean(a, b, 1).error));
    T_OK(isnan(paired_mean(a, (double[]){1, NAN, 3, 4}, 4).p));
}

/* The p of the normal approximation against all 2^12 flips of the signs. */
TEST(sign_flips)
{
    enum { N = 12 };
    double   a[N], b[N];
    uint64_t seed = 5;
    for (int trial = 0; trial < 20; trial++) {
        double seen = 0;
        int    hits = 0;
        for (int i = 0; i < N; i++) {
            a[i] = 0;
            b[i] = (double)check_normal(&seed) + 0.05 * trial;
            seen += b[i];
        }
        for (int coins = 0; coins < 1 << N; coins++) {
            double sum = 0;
            for (int i = 0; i < N; i++)
                sum += coins >> i & 1 ? b[i] : -b[i];
            hits += fabs(sum) >= fabs(seen) - 1e-12;
        }
        /* Twelve summands: the bell is within a few per cent of the steps. */
        T_NEAR(paired_mean(a, b, N).p, (double)hits / (1 << N), 0.04);
    }
}
