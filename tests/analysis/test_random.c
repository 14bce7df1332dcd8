/* test_random.c - numbers that must be the same everywhere. */
#include "analysis/random.h"

#include "tests/check.h"

/* From the authors' splitmix64.c, seed 1234567. */
TEST(bits_are_those_of_splitmix64)
{
    static const uint64_t WANT[] = {6457827717110365317u, 3203168211198807973u,
                                    9817491932198370423u};
    uint64_t state = 1234567;
    for (int i = 0; i < 3; i++)
        T_OK(random_bits(&state) == WANT[i]);
}

/* chi-square of 6 cells with 60000 draws: 5 degrees of freedom, 20.5 at 0.1 %. */
TEST(below_is_even)
{
    int64_t  count[6] = {0};
    uint64_t state = 1;
    double   chi = 0;
    for (int i = 0; i < 60000; i++) {
        int64_t x = random_below(&state, 6);
        T_OK(x >= 0 && x < 6);
        count[x]++;
    }
    for (int i = 0; i < 6; i++)
        chi += (double)((count[i] - 10000) * (count[i] - 10000)) / 10000;
    T_OK(chi < 20.5);
    for (int i = 0; i < 100; i++)
        T_OK(random_below(&state, 1) == 0);
    /* Of 3/4 of all numbers, those that wrap would come twice as often. */
    int64_t n = (int64_t)3 << 61, low = 0;
    for (int i = 0; i < 10000; i++)
        low += random_below(&state, n) < n / 3;
    T_OK(low > 3100 && low < 3570);   // 3333 +- 5 standard deviations
}

TEST(shuffles_are_even_and_lose_nothing)
{
    int      first[5] = {0};
    uint64_t state = 2;
    for (int i = 0; i < 5000; i++) {
        int64_t order[5] = {0, 1, 2, 3, 4}, seen = 0;
        random_shuffle(order, 5, &state);
        for (int k = 0; k < 5; k++)
            seen |= 1 << order[k];
        T_OK(seen == 31);
        first[order[0]]++;
    }
    for (int k = 0; k < 5; k++)
        T_OK(first[k] > 860 && first[k] < 1140);   // 1000 +- 5 standard deviations
}

TEST(streams_are_apart)
{
    uint64_t a = random_stream(7, 0), b = random_stream(7, 1), c = random_stream(8, 0);
    T_OK(a != b && a != c && b != c && a == random_stream(7, 0));
    T_OK(random_bits(&a) != random_bits(&b));
}
