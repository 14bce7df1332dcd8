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
    WindowOptions o = {.context = 4}, narrow = {.context = 1},
                  one = {.context = 4, .max_tokens = 1},
                  minus = {.context = 4, .max_tokens = -1};
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

/* --- the other conventions, TEN with a context of 4 --- */

static bool cut_as(const WindowOptions *o, int64_t n, int32_t bos, int64_t windows,
                   const int32_t *want, const int32_t *next)
{
    Arena   a = {0};
    Windows w;
    int64_t rows = 0, scored = 0;
    while (want[rows] >= 0)
        scored += next[rows++] >= 0;
    bool ok = windows_from_ids(&w, &a, "x", TEN, n, bos, o) == OK && w.seq.n == windows &&
              w.n_tokens == rows && w.seq.start[windows] == rows && w.n_scored == scored &&
              w.n_text == n && same_ints(w.seq.ids, want, rows) &&
              same_ints(w.seq.targets, next, rows) &&
              sequences_longest(&w.seq) <= o->context;
    arena_close(&a);
    return ok;
}

TEST(strided_windows_score_what_is_new)
{
    static const int32_t IDS[] = {1,  10, 11, 12, 12, 13, 14, 15, 15, 16, 17, 18,
                                  18, 19, -1};
    static const int32_t NEXT[] = {10, 11, 12, -1, 13, 14, 15, -1, 16, 17, 18, -1,
                                   19, -1};
    static const int32_t TWO[] = {10, 11, 12, 13, 12, 13, 14, 15, 14, 15, 16, 17,
                                  16, 17, 18, 19, -1};
    static const int32_t TWO_NEXT[] = {11, 12, 13, -1, -1, 14, 15, -1, -1, 16, 17, -1,
                                       -1, 18, 19, -1};
    static const int32_t FOUR[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, -1};
    static const int32_t FOUR_NEXT[] = {11, 12, 13, -1, 15, 16, 17, -1, 19, -1};
    static const int32_t ONE[] = {1, 10, 11, 12, 10, 11, 12, 13, -1};
    static const int32_t ONE_NEXT[] = {10, 11, 12, -1, -1, -1, 13, -1};
    WindowOptions o = {.context = 4, .convention = WINDOWS_STRIDED, .stride = 3};
    T_OK(cut_as(&o, 10, 1, 4, IDS, NEXT));
    o.stride = 0;  // half of the context
    T_OK(cut_as(&o, 10, -1, 4, TWO, TWO_NEXT));
    o.stride = 4;
    T_OK(cut_as(&o, 10, -1, 3, FOUR, FOUR_NEXT));
    o.stride = 1;
    T_OK(cut_as(&o, 4, 1, 2, ONE, ONE_NEXT));
    static const int32_t SHORT[] = {1, 10, 11, 12, -1}, SHORT_NEXT[] = {10, 11, 12, -1};
    T_OK(cut_as(&o, 3, 1, 1, SHORT, SHORT_NEXT));
}

TEST(llama_cpp_scores_the_second_half)
{
    static const int32_t IDS[] = {1, 10, 11, 12, 1, 14, 15, 16, -1};
    static const int32_t NEXT[] = {-1, -1, 12, -1, -1, -1, 16, -1};
    static const int32_t PLAIN[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, -1};
    static const int32_t PLAIN_NEXT[] = {-1, -1, 13, 14, -1, -1, -1, 18, 19, -1};
    WindowOptions o = {.context = 4, .convention = WINDOWS_LLAMA_CPP};
    /* 1 10 11 12 | 13 14 15 16 | 17 18 19 with BOS for the first of each; 3 are left out */
    T_OK(cut_as(&o, 10, 1, 2, IDS, NEXT));
    T_OK(cut_as(&o, 7, 1, 2, IDS, NEXT));
    o.context = 5;  // 5/2 = 2: places 3 and 4
    T_OK(cut_as(&o, 10, -1, 2, PLAIN, PLAIN_NEXT));
}

TEST(lm_eval_predicts_every_token)
{
    static const int32_t IDS[] = {1, 10, 11, 12, 13, 14, 15, 16, 15, 16, 17, 18, -1};
    static const int32_t NEXT[] = {10, 11, 12, 13, 14, 15, 16, 17, -1, -1, 18, 19};
    static const int32_t EVEN[] = {1, 10, 11, 12, 13, 14, 15, 16, -1};
    static const int32_t EVEN_NEXT[] = {10, 11, 12, 13, 14, 15, 16, 17};
    static const int32_t SHORT[] = {1, 10, 11, -1}, SHORT_NEXT[] = {10, 11, 12};
    WindowOptions o = {.context = 4, .convention = WINDOWS_LM_EVAL};
    T_OK(cut_as(&o, 10, 1, 3, IDS, NEXT));
    T_OK(cut_as(&o, 8, 1, 2, EVEN, EVEN_NEXT));
    T_OK(cut_as(&o, 3, 1, 1, SHORT, SHORT_NEXT));
    Arena   a = {0};
    Windows w;
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, -1, &o), ERR_RANGE,
            "t.txt: windows of lm-eval begin with BOS or EOS, and there is neither");
    arena_close(&a);
}

TEST(gptq_counts_whole_windows)
{
    static const int32_t IDS[] = {1, 10, 11, 12, 13, 14, 15, 16, -1};
    static const int32_t NEXT[] = {10, 11, 12, -1, 14, 15, 16, -1};
    static const int32_t PLAIN[] = {10, 11, 12, 13, 14, 15, 16, 17, -1};
    static const int32_t PLAIN_NEXT[] = {11, 12, 13, -1, 15, 16, 17, -1};
    WindowOptions o = {.context = 4, .convention = WINDOWS_GPTQ};
    T_OK(cut_as(&o, 10, 1, 2, IDS, NEXT));
    T_OK(cut_as(&o, 7, 1, 2, IDS, NEXT));
    T_OK(cut_as(&o, 10, -1, 2, PLAIN, PLAIN_NEXT));
    T_OK(cut_as(&o, 8, -1, 2, PLAIN, PLAIN_NEXT));
}

TEST(options_that_do_not_fit_are_errors)
{
    Arena   a = {0};
    Windows w;
    WindowOptions llama = {.context = 11, .convention = WINDOWS_LLAMA_CPP};
    WindowOptions wide = {.context = 4, .convention = WINDOWS_STRIDED, .stride = 5};
    WindowOptions two = {.context = 2, .convention = WINDOWS_LLAMA_CPP};
    WindowOptions gptq = {.context = 4, .convention = WINDOWS_GPTQ, .stride = 2};
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, 1, &llama), ERR_RANGE,
            "t.txt: 10 tokens are not one whole window of 11, and llama.cpp counts only");
    T_STATUS_OK(windows_from_ids(&w, &a, "t.txt", TEN, 10, 1, &llama));
    T_OK(w.seq.n == 1 && w.n_scored == 5);
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, 1, &wide), ERR_RANGE,
            "a stride of 5 tokens, expected 1 to the context, 4");
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, 1, &two), ERR_RANGE,
            "a context of 2 tokens: at least 3");
    T_FAILS(windows_from_ids(&w, &a, "t.txt", TEN, 9, 1, &gptq), ERR_USAGE,
            "a stride of 2 tokens, but gptq windows have none");
    arena_close(&a);
}

TEST(conventions_have_names_and_sentences)
{
    static const char *const SAY[] = {"without overlap, each beginning with BOS",
                                      "one every 2, BOS once before the text",
                                      "tokens 3 to 3 of each", "rolling windows of 4 tokens",
                                      "GPTQ's convention: whole windows of 4"};
    WindowConvention c;
    for (int i = 0; i < N_WINDOW_CONVENTIONS; i++) {
        Arena   a = {0};
        Windows w;
        WindowOptions o = {.context = 4, .convention = (WindowConvention)i};
        T_STATUS_OK(window_convention_parse(&c, window_convention_name(o.convention)));
        T_OK(c == o.convention);
        T_STATUS_OK(windows_from_ids(&w, &a, "x", TEN, 10, 1, &o));
        T_OK(strstr(w.convention, SAY[i]));
        arena_close(&a);
    }
    T_FAILS(window_convention_parse(&c, "llama"), ERR_USAGE,
            "\"llama\", expected disjoint, strided, llama.cpp, lm-eval or gptq");
}

TEST(words_and_bytes_where_all_is_scored)
{
    /* Python: len(re.split(r"\s+", s)) */
    static const struct { const char *text; int64_t words; } CASES[] = {
        {"abc", 1}, {"a b   c", 3}, {" ab c ", 4}};
    Arena      tokens = {0};
    Tokenizer *t;
    T_STATUS_OK(tiny_tokenizer(&t, &tokens, true));
    for (int i = 0; i < 3; i++) {
        Arena   a = {0};
        Windows w;
        size_t  n = strlen(CASES[i].text);
        for (int c = 0; c < N_WINDOW_CONVENTIONS; c++) {
            WindowOptions o = {.context = 3, .convention = (WindowConvention)c};
            bool all = c == WINDOWS_DISJOINT || c == WINDOWS_STRIDED || c == WINDOWS_LM_EVAL;
            T_STATUS_OK(windows_from_text(&w, &a, t, "x", CASES[i].text, n, &o));
            T_OK(w.n_bytes == (all ? (int64_t)n : 0));
            T_OK(w.n_words == (all ? CASES[i].words : 0));
        }
        WindowOptions o = {.context = 3, .no_bos = true};
        T_STATUS_OK(windows_from_text(&w, &a, t, "x", CASES[i].text, n, &o));
        T_OK(w.n_bytes == 0 && w.n_words == 0);  // nothing predicts the first token
        arena_close(&a);
    }
    Arena   a = {0};
    Windows w;
    WindowOptions o = {.context = 3, .max_tokens = 4};
    T_STATUS_OK(windows_from_text(&w, &a, t, "x", "a 42 bc d", 9, &o));
    T_OK(w.n_text == 4 && w.n_bytes == 5 && w.n_words == 3);  // "a", " ", "42", " "
    arena_close(&a);
    tokenizer_close(t);
    arena_close(&tokens);
}

TEST(lm_eval_takes_a_bos_that_is_not_added)
{
    Arena      a = {0};
    Tokenizer *t;
    Windows    w;
    WindowOptions o = {.context = 3, .convention = WINDOWS_LM_EVAL};
    T_STATUS_OK(tiny_tokenizer(&t, &a, false));
    T_OK(windows_prefix(t, &o) == TINY_BOS && windows_bos(t, false) == -1);
    T_STATUS_OK(windows_from_text(&w, &a, t, "x", "abcd", 4, &o));
    T_OK(w.bos == TINY_BOS && w.n_scored == 4 && w.n_bytes == 4);
    o.convention = WINDOWS_GPTQ;
    T_OK(windows_prefix(t, &o) == -1);
    tokenizer_close(t);
    arena_close(&a);
}

/* As in lm-evaluation-harness 0.4.13, which gives log p(BOS | BOS) to a text's sum. */
TEST(lm_eval_predicts_the_bos_that_the_tokenizer_adds)
{
    Arena      a = {0};
    Tokenizer *t;
    Windows    w;
    WindowOptions o = {.context = 3, .convention = WINDOWS_LM_EVAL};
    T_STATUS_OK(tiny_tokenizer(&t, &a, true));
    T_STATUS_OK(windows_from_text(&w, &a, t, "x", "abcd", 4, &o));
    T_OK(w.n_text == 5 && w.n_scored == 5 && w.n_bytes == 4);
    T_OK(w.seq.ids[0] == TINY_BOS && w.seq.ids[1] == TINY_BOS && w.seq.targets[0] == TINY_BOS);
    o.no_bos = true;
    T_FAILS(windows_from_text(&w, &a, t, "x", "abcd", 4, &o), ERR_RANGE, "neither");
    tokenizer_close(t);
    arena_close(&a);
}

TEST(slices_count_anew)
{
    Arena   a = {0};
    Windows w, part;
    WindowOptions o = {.context = 4};
    T_STATUS_OK(windows_from_ids(&w, &a, "x", TEN, 10, 1, &o));
    T_STATUS_OK(windows_slice(&part, &a, &w, 2, 2));
    T_OK(part.seq.n == 2 && part.n_tokens == 6 && part.n_text == 4 && part.n_scored == 4);
    T_OK(part.seq.start[0] == 0 && part.seq.start[2] == 6 && part.seq.ids[1] == 16);
    o.convention = WINDOWS_LM_EVAL;
    T_STATUS_OK(windows_from_ids(&w, &a, "x", TEN, 10, 1, &o));
    T_STATUS_OK(windows_slice(&part, &a, &w, 1, 2));
    T_OK(part.n_tokens == 8 && part.n_text == 8 && part.n_scored == 6 && part.n_bytes == 0);
    arena_close(&a);
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
