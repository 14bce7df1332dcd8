/* pyrandom.c - see pyrandom.h. */
#include "analysis/tasks/pyrandom.h"

#include <stdbool.h>

enum { N = PYRANDOM_WORDS, M = 397 };

static void fill(PyRandom *r, uint32_t seed)
{
    r->word[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t before = r->word[i - 1];
        r->word[i] = 1812433253u * (before ^ before >> 30) + i;
    }
    r->next = N;
}

/* init_by_array with the seed's words, the lowest first, without leading zeros. */
void pyrandom_seed(PyRandom *r, uint64_t seed)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t n_key = key[1] ? 2 : 1, i = 1, j = 0, *w = r->word;
    fill(r, 19650218u);
    for (int k = 0; k < N; k++) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1664525u) + key[j] + j;
        j = (j + 1) % n_key;
        if (++i == N) {
            w[0] = w[N - 1];
            i = 1;
        }
    }
    for (int k = 1; k < N; k++) {
        w[i] = (w[i] ^ (w[i - 1] ^ w[i - 1] >> 30) * 1566083941u) - i;
        if (++i == N) {
            w[0] = w[N - 1];
            i = 1;
        }
    }
    w[0] = 0x80000000u;
}

static void next_words(PyRandom *r)
{
    for (int i = 0; i < N; i++) {
        uint32_t y = (r->word[i] & 0x80000000u) | (r->word[(i + 1) % N] & 0x7fffffffu);
        r->word[i] = r->word[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    r->next = 0;
}

uint32_t pyrandom_word(PyRandom *r)
{
    if (r->next == N)
        next_words(r);
    uint32_t y = r->word[r->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* _randbelow: as many bits as n has, until they are below n. */
static int64_t below(PyRandom *r, int64_t n)
{
    int bits = 64 - __builtin_clzll((unsigned long long)n);
    int64_t x;
    do
        x = pyrandom_word(r) >> (32 - bits);
    while (x >= n);
    return x;
}

static bool is_in(const int64_t *x, int64_t n, int64_t value)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] == value)
            return true;
    return false;
}

/* Up to this n Python draws from a list that shrinks, above it until k differ. */
static int64_t largest_pool(int64_t k)
{
    int64_t table = 1;
    while (table < 3 * k)
        table *= 4;
    return 21 + (k > 5 ? table : 0);
}

static Status sample_pool(PyRandom *r, int64_t *out, int64_t k, int64_t n)
{
    Arena    tmp = {0};
    int64_t *pool = arena_alloc(&tmp, n, sizeof *pool);
    if (!pool)
        FAIL(ERR_MEMORY, "out of memory for a drawing of %lld", (long long)n);
    for (int64_t i = 0; i < n; i++)
        pool[i] = i;
    for (int64_t i = 0; i < k; i++) {
        int64_t j = below(r, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    arena_close(&tmp);
    return OK;
}

Status pyrandom_sample(PyRandom *r, int64_t *out, int64_t k, int64_t n)
{
    CHECK(k >= 0 && k <= n && n <= UINT32_MAX);
    if (n <= largest_pool(k))
        return sample_pool(r, out, k, n);
    for (int64_t i = 0; i < k; i++)
        do
            out[i] = below(r, n);
        while (is_in(out, i, out[i]));
    return OK;
}
