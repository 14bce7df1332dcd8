/* test_pyrandom.c - words and drawings that Python 3.11 printed. */
#include "analysis/tasks/pyrandom.h"

#include "tests/check.h"

TEST(words)
{
    static const struct {
        uint64_t seed;
        uint32_t first, second, last;   // last: number 702
    } ROWS[] = {
        {0, 3626764237u, 1654615998u, 4287163522u},
        {1234, 4150886329u, 3342196574u, 3469095335u},
        {UINT32_MAX, 2728839433u, 2661025012u, 2622582650u},
        {(1ull << 40) + 5, 2166296868u, 2220160828u, 2655064837u},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        PyRandom r;
        uint32_t last = 0;
        pyrandom_seed(&r, ROWS[i].seed);
        T_OK(pyrandom_word(&r) == ROWS[i].first);
        T_OK(pyrandom_word(&r) == ROWS[i].second);
        for (int k = 0; k < 700; k++)
            last = pyrandom_word(&r);
        T_OK(last == ROWS[i].last);
    }
}

/* Each sample twice from one generator. 21 and 85 are the longest lists that shrink. */
TEST(samples)
{
    static const struct {
        uint64_t seed;
        int64_t  k, n, first[8], second[8];
    } ROWS[] = {
        {1234, 3, 10, {7, 1, 0}, {1, 0, 9}},
        {1234, 5, 21, {14, 3, 0, 2, 1}, {2, 3, 11, 7, 0}},
        {1234, 5, 22, {14, 3, 0, 2, 18}, {1, 21, 2, 3, 11}},
        {1234, 6, 85, {56, 14, 0, 11, 74, 4}, {10, 12, 45, 30, 2, 3}},
        {1234, 6, 86, {56, 14, 0, 11, 74, 4}, {85, 10, 12, 45, 30, 2}},
        {0, 8, 300, {197, 215, 20, 132, 261, 248, 207, 155},
         {244, 183, 298, 111, 258, 71, 144, 48}},
        {(1ull << 40) + 5, 4, 4, {2, 3, 0, 1}, {1, 0, 2, 3}},
        {7, 1, 1, {0}, {0}},
        {7, 2, 70000, {42445, 19772}, {51750, 6328}},
        {9, 0, 4, {0}, {0}},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        PyRandom r;
        pyrandom_seed(&r, ROWS[i].seed);
        for (int turn = 0; turn < 2; turn++) {
            int64_t got[8];
            T_STATUS_OK(pyrandom_sample(&r, got, ROWS[i].k, ROWS[i].n));
            for (int64_t j = 0; j < ROWS[i].k; j++)
                T_OK(got[j] == (turn ? ROWS[i].second : ROWS[i].first)[j]);
        }
    }
}
