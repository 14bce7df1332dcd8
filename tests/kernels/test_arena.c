/* test_arena.c - alignment, marks, overflow, failure on demand. */
#include <string.h>

#include "kernels/arena.h"
#include "tests/check.h"

static bool is_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

TEST(arena_gives_aligned_zeroed_memory)
{
    Arena        a = {0};
    const size_t SIZES[] = {1,       63,            64,      65, 4096, (1 << 20) - 1,
                            1 << 20, (1 << 20) + 1, 5 << 20};
    for (int i = 0; i < 9; i++) {
        char *p = arena_alloc(&a, (int64_t)SIZES[i], 1);
        T_OK(p && (uintptr_t)p % 64 == 0 && is_zero(p, SIZES[i]));
        memset(p, 0xff, SIZES[i]);
    }
    arena_close(&a);
    T_OK(!a.top && a.used == 0);
}

TEST(arena_zeroes_memory_it_gives_again)
{
    Arena     a = {0};
    char     *keep = arena_alloc(&a, 10, 1);
    ArenaMark mark = arena_mark(&a);
    char     *p = arena_alloc(&a, 100, 1);
    memset(keep, 1, 10);
    memset(p, 0xff, 100);
    arena_rewind(&a, mark);
    char *again = arena_alloc(&a, 100, 1);
    T_OK(again == p && is_zero(again, 100));
    T_OK(keep[0] == 1 && keep[9] == 1);
    arena_close(&a);
}

/* Also where what was handed out before was written to, and by other calls. */
TEST(arena_sparse_is_zero_too)
{
    enum { N = 3 << 20 };
    Arena     a = {0};
    char     *small = arena_alloc(&a, 100, 1);
    ArenaMark mark = arena_mark(&a);
    for (int round = 0; round < 3; round++) {
        char *p = arena_sparse(&a, N, 1), *raw = arena_raw(&a, N, 1);
        char *zeroed = arena_alloc(&a, N, 1), *again = arena_sparse(&a, 20 << 20, 1);
        T_OK(p && raw && zeroed && again && (uintptr_t)p % 64 == 0);
        T_OK(is_zero(p, N) && is_zero(zeroed, N) && is_zero(again, 20 << 20));
        memset(p, 0xff, N);
        memset(raw, 0xff, N);
        memset(zeroed, 0xff, N);
        if (round == 1) {   // within the block, and what was written is handed out again
            ArenaMark inner = arena_mark(&a);
            memset(arena_sparse(&a, 1000, 1), 0xff, 1000);
            arena_rewind(&a, inner);
            T_OK(is_zero(arena_sparse(&a, 2000, 1), 2000));
        }
        arena_rewind(&a, mark);
    }
    T_OK(is_zero(small, 100) && !arena_sparse(&a, INT64_MAX / 8, 8));
    arena_fail_at(1);
    T_OK(!arena_sparse(&a, 1, 1));
    arena_fail_at(0);
    arena_close(&a);
}

/* Sizes on both sides of those of blocks, filled; what comes after lies elsewhere. */
TEST(arena_blocks_hold_what_they_were_made_for)
{
    const int64_t UNITS[] = {1 << 20, 4 << 20, 16 << 20}, OFF[] = {-192, -128, -65, -64, -63, 0, 1};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 7; j++) {
            int64_t n = UNITS[i] + OFF[j];
            for (int kind = 0; kind < 3; kind++) {
                Arena a = {.keep = kind == 1};
                char *p = kind == 2 ? arena_sparse(&a, n, 1) : arena_raw(&a, n, 1);
                T_OK(p != NULL);
                memset(p, 1, (size_t)n);
                char *next = arena_alloc(&a, 1 << 20, 1);
                T_OK(is_zero(next, 1 << 20));
                memset(next, 2, 1 << 20);
                T_OK(p[0] == 1 && p[n - 1] == 1);
                arena_close(&a);
            }
        }
}

TEST(arena_rewinds_over_many_blocks)
{
    Arena     a = {0};
    char     *first = arena_alloc(&a, 8, 1);
    ArenaMark mark = arena_mark(&a);
    size_t    used = a.used;
    for (int i = 0; i < 5; i++)
        T_OK(arena_raw(&a, 3 << 20, 1));
    T_OK(a.peak >= 15u << 20);
    size_t peak = a.peak;
    arena_rewind(&a, mark);
    T_OK(a.used == used && a.peak == peak);
    first[7] = 1;
    arena_rewind(&a, (ArenaMark){0});
    T_OK(a.used == 0);
    arena_close(&a);
    arena_close(&a);
}

TEST(arena_that_keeps_gives_the_same_blocks_again)
{
    enum { MIB = 1 << 20 };
    Arena     a = {.keep = true};
    ArenaMark mark = arena_mark(&a);
    char     *p = arena_raw(&a, 16 * MIB, 1), *q = arena_raw(&a, 8 * MIB, 1);
    size_t    peak = a.peak;
    T_OK(p && q);
    memset(p, 0xff, 16 * MIB);
    memset(q, 0xff, 8 * MIB);
    for (int i = 0; i < 3; i++) {
        arena_rewind(&a, mark);
        T_OK(a.used == 0 && a.spare);
        char *less = arena_alloc(&a, 7 * MIB, 1), *same = arena_alloc(&a, 16 * MIB, 1);
        T_OK(less == q && same == p && !a.spare && a.peak == peak);
        T_OK(is_zero(less, 7 * MIB) && is_zero(same, 16 * MIB));
        memset(less, 0xff, 7 * MIB);
    }
    arena_rewind(&a, mark);
    T_OK(arena_raw(&a, MIB / 32, 1) && a.spare);   // small blocks leave large ones alone
    T_OK(arena_raw(&a, 17 * MIB, 1) && !a.spare);  // none fits: all go
    arena_rewind(&a, mark);
    T_OK(a.spare);
    arena_close(&a);
    T_OK(!a.spare && !a.top && a.keep);
    a.keep = false;
    T_OK(arena_raw(&a, 8 * MIB, 1));
    arena_rewind(&a, (ArenaMark){0});
    T_OK(!a.spare);
    arena_close(&a);
}

/* Matrices of less than a large page of 2 MiB lie in those of a common block. */
TEST(arena_that_keeps_lays_small_matrices_together)
{
    enum { KIB = 1 << 10, N = 40, PAGE = 2048 * KIB };
    Arena     a = {.keep = true};
    uintptr_t at[N];
    for (int i = 0; i < N; i++)
        at[i] = (uintptr_t)arena_raw(&a, 192 * KIB, 1);
    T_OK(at[0] % PAGE == 64 && a.used == N * (192 * KIB + 64));
    for (int i = 1; i < N; i++)
        T_OK(at[i] == at[i - 1] + 192 * KIB + 64);
    ArenaMark mark = arena_mark(&a);
    T_OK(arena_raw(&a, 9 * PAGE, 1));  // has its own
    arena_rewind(&a, mark);
    T_OK((uintptr_t)arena_raw(&a, 192 * KIB, 1) == at[N - 1] + 192 * KIB + 64);
    arena_close(&a);
}

TEST(arena_of_nothing_is_not_null)
{
    Arena a = {0};
    char *p = arena_alloc(&a, 0, 100), *q = arena_alloc(&a, 5, 0);
    T_OK(p && q && p != q);
    arena_close(&a);
}

TEST(arena_refuses_what_cannot_be)
{
    Arena a = {0};
    T_OK(!arena_alloc(&a, -1, 1));
    T_OK(!arena_alloc(&a, INT64_MAX, 8));
    T_OK(!arena_raw(&a, INT64_MAX, 1));
    T_OK(!arena_raw(&a, 1, SIZE_MAX));
    T_OK(a.used == 0);
    arena_close(&a);
}

TEST(arena_text_and_printf)
{
    Arena a = {0};
    char  raw[3] = {'a', 0, 'b'};
    char *t = arena_text(&a, raw, 3);
    T_OK(t && memcmp(t, raw, 3) == 0 && t[3] == 0);
    T_TEXT(arena_printf(&a, "%s-%d", "x", 42), "x-42");
    T_TEXT(arena_printf(&a, "%s", ""), "");
    arena_close(&a);
}

static Status two_allocations(Arena *a)
{
    int   *p;
    double *q;
    ARENA_NEW(p, a, 3);
    ARENA_NEW(q, a, 4);
    return p && q ? OK : ERR_MEMORY;
}

TEST(arena_fails_where_it_is_told)
{
    Arena a = {0};
    arena_fail_at(1);
    T_FAILS(two_allocations(&a), ERR_MEMORY, "out of memory: 3 items of 4 bytes");
    arena_fail_at(2);
    T_FAILS(two_allocations(&a), ERR_MEMORY, "out of memory: 4 items of 8 bytes");
    T_OK(!arena_text(&a, "x", 1));  // and all that follow
    arena_fail_at(3);
    T_OK(two_allocations(&a) == OK);
    arena_fail_at(0);
    T_OK(arena_printf(&a, "fine"));
    arena_close(&a);
}
