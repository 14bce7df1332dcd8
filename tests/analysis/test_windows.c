/* test_windows.c - where windows begin and end, and what is scored in them. */
#include "analysis/windows.h"

#include <string.h>

#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

static const int32_t TEN[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

static bool same_ints(const int32_t *a, const int32_t *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

TEST(bos_begins_each_window)
{
    static const int32_t IDS[] = {1, 10, 11, 12, 1, 13, 14, 15, 1, 16, 17, 18, 1, 19};
    static const int32_t NEXT[] = {10, 11, 12, -1, 13, 14, 15, -1, 16, 17, 18, -1, 19, -1};
    static const int64_t START[] = {0, 4, 8, 12, 14};
    Arena   a = {0};
    Windows w;
    WindowOptions o = {.context = 4};
    T_STATUS_OK(windows_from_ids(&w, &a, "x", TEN, 10, 1, &o));
    T_OK(w.seq.n == 4 && memcmp(w.seq.start, START, sizeof START) == 0);
    T_OK(same_ints(w.seq.ids, IDS, 14) && same_ints(w.seq.targets, NEXT, 14));
    T_OK(w.n_text == 10 && w.n_tokens == 14 && w.n_scored == 10);
    T_OK(w.context == 4 && w.bos == 1 && !w.seq.spans);
    T_OK(strstr(w.convention, "Windows of 4 tokens") && strstr(w.convention, "BOS, which"));
    T_OK(sequences_longest(&w.seq) == 4);
    arena_close(&a);
}

TEST(without_bos_the_first_of_each_is_not_scored)
{
    static const int32_t NEXT[] = {11, 12, 13, -1, 15, 16, 17, -1, 19, -1};
    Arena   a = {0};
    Windows w;
    for (int turn = 0; turn < 2; turn++) {  // no BOS to give; BOS not wanted
        WindowOptions o = {.context = 4, .no_bos = turn};
        T_STATUS_OK(windows_from_ids(&w, &a, "x", TEN, 10, turn ? 1 : -1, &o));
        T_OK(w.seq.n == 3 && same_ints(w.seq.ids, TEN, 10));
        T_OK(same_ints(w.seq.targets, NEXT, 10));
        T_OK(w.n_tokens == 10 && w.n_scored == 7 && w.bos == -1);
        T_OK(strstr(w.convention, "without BOS"));
    }
    arena_close(&a);
}

/* Windows of a text of n tokens: how many, and how long the last. */
static bool cuts(int64_t n, int64_t context, int32_t bos, int64_t windows, int64_t last)
{
    Arena   a = {0};
    Windows w;
    WindowOptions o = {.context = context};
    Status  s = windows_from_ids(&w, &a, "x", TEN, n, bos, &o);
    bool    ok = s == OK && w.seq.n == windows && w.seq.start[windows] == w.n_tokens &&
              w.seq.start[windows] - w.seq.start[windows - 1] == last;
    arena_close(&a);
    return ok;
}

TEST(lengths_on_both_sides_of_a_window)
{
    T_OK(cuts(10, 5, -1, 2, 5));
    T_OK(cuts(9, 5, -1, 2, 4));
    T_OK(cuts(6, 5, -1, 2, 1));
    T_OK(cuts(10, 6, 1, 2, 6));
    T_OK(cuts(6, 6, 1, 2, 2));
    T_OK(cuts(5, 6, 1, 1, 6));
    T_OK(cuts(2, 100, 1, 1, 3));   // a text shorter than the context
    T_OK(cuts(3, 2, 1, 3, 2));
    T_OK(cuts(3, 2, -1, 2, 1));
}

TEST(max_tokens_takes_the_beginning)
{
    Arena   a = {0};
    Windows w;
    WindowOptions o = {.context = 4, .max_tokens = 5};
    T_STATUS_OK(windows_from_ids(&w, &a, "x", TEN, 10, 1, &o));
    T_OK(w.n_text == 5 && w.seq.n == 2 && w.n_scored == 5);
    o.max_tokens = 50;
    T_STATUS_OK(windows_from_ids(&w, &a, "x", TEN, 10, 1, &o));
    T_OK(w.n_text == 10);
    arena_close(&a);
}

TEST(nothing_to_predict_is_an_error)
{
    Arena   a = {0};
    Windows w;
    WindowOptions o = {.context = 4}, narrow = {.context = 1}, one = {4, 1, false},
                  minus = {4, -1, false};
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 0, 1, &o), ERR_RANGE,
            "t.txt: the text is empty");
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 1, 1, &o), ERR_RANGE,
            "t.txt: a text of a single token");
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, 1, &one), ERR_RANGE, "single token");
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, 1, &minus), ERR_RANGE, "at most -1");
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, 1, &narrow), ERR_RANGE,
            "a context of 1 tokens: at least 2");
    arena_close(&a);
}

TEST(text_goes_through_the_tokenizer)
{
    static const int32_t WITH[] = {TINY_BOS, 'a' - 29, 'b' - 29, TINY_BOS, 'c' - 29};
    for (int adds_bos = 0; adds_bos < 2; adds_bos++) {
        Arena      a = {0};
        Tokenizer *t;
        Windows    w;
        WindowOptions o = {.context = 3};
        T_STATUS_OK(tiny_tokenizer(&t, &a, adds_bos));
        T_OK(tokenizer_bos(t) == TINY_BOS && windows_bos(t, true) == -1);
        T_STATUS_OK(windows_from_text(&w, &a, t, "x", "abc", 3, &o));
        T_OK(w.n_text == 3 && w.bos == (adds_bos ? TINY_BOS : -1));
        T_OK(w.n_tokens == (adds_bos ? 5 : 3));
        if (adds_bos)
            T_OK(same_ints(w.seq.ids, WITH, 5));
        o.no_bos = true;
        T_STATUS_OK(windows_from_text(&w, &a, t, "x", "abc", 3, &o));
        T_OK(w.n_tokens == 3 && w.bos == -1);
        T_FAILS(windows_from_text(&w, &a, t, "e.txt", "", 0, &o), ERR_RANGE, "e.txt: the text");
        T_FAILS(windows_from_text(&w, &a, t, "e.txt", "42", 2, &o), ERR_RANGE, "single token");
        tokenizer_close(t);
        arena_close(&a);
    }
}

TEST(every_allocation_may_fail)
{
    Arena      tokens = {0};
    Tokenizer *t;
    Windows    w;
    WindowOptions o = {.context = 3};
    Status     s = ERR_MEMORY;
    int64_t    k = 0;
    T_STATUS_OK(tiny_tokenizer(&t, &tokens, true));
    while (s != OK) {
        Arena a = {0};
        arena_fail_at(++k);
        s = windows_from_text(&w, &a, t, "x", "some text", 9, &o);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        arena_close(&a);
    }
    T_OK(k > 4);
    tokenizer_close(t);
    arena_close(&tokens);
}
