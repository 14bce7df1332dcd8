/* test_nfc.c - normalization form C: cases of the Unicode standard, the library's
 * unknown marks, and long runs. Every character goes through golden/tokenizers'
 * qwen2 lines besides. */
#include <string.h>

#include "analysis/text/nfc.h"
#include "tests/check.h"

TEST(composes)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {
        {"", ""},
        {"plain", "plain"},
        {"e\u0301", "\u00e9"},
        {"xe\u0301y", "x\u00e9y"},
        {"\u0301e", "\u0301e"},                    // a mark with nothing before it
        {"o\u0302\u0323", "\u1ed9"},               // sorted first: dot below, then circumflex
        {"q\u0307\u0323", "q\u0323\u0307"},        // sorted, nothing to compose
        {"a\u0301\u0301", "\u00e1\u0301"},         // the second is blocked by the first
        {"a\u0323\u0302", "\u1ead"},               // a three-part character in two steps
        {"\u1100\u1161\u11a8", "\uac01"},          // Hangul L V T
        {"\uac00\u11a8", "\uac01"},                // LV T
        {"\uac01\u11a8", "\uac01\u11a8"},          // LVT T
        {"\u1100\u11a8", "\u1100\u11a8"},
        {"\u212b", "\u00c5"},                      // one-way to another character
        {"\u0958", "\u0915\u093c"},                // excluded from composition
        {"\u0344", "\u0308\u0301"},
        {"\u09c7\u09be", "\u09cb"},                // two starters that compose
        {"\u09c7\u0323\u09be", "\u09c7\u0323\u09be"},  // but not past a mark
        {"\uf900", "\u8c48"},
        {"\U0002f800", "\u4e3d"},
        {"\U0001d15e", "\U0001d157\U0001d165"},
        {"a\u1abf\u0334", "a\u1abf\u0334"},        // U+1ABF is newer than the library's table
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Arena      a = {0};
        PieceSpace space = {&a, true};
        Piece      p = {.text = CASES[i].in, .n = (int64_t)strlen(CASES[i].in)};
        T_STATUS_OK(nfc_apply(&p, &space));
        if (p.n != (int64_t)strlen(CASES[i].out) ||
            memcmp(p.text, CASES[i].out, (size_t)p.n) != 0)
            check_fail(__FILE__, __LINE__, "case %zu: \"%s\" gave \"%.*s\"", i, CASES[i].in,
                       (int)p.n, p.text);
        arena_close(&a);
    }
}

TEST(text_in_the_form_is_not_copied)
{
    Arena       a = {0};
    PieceSpace  space = {&a, true};
    const char *text = "\u00e9 \uac01 \u8c48 \u0439 plain \U0001f600";
    Piece       p = {.text = text, .n = (int64_t)strlen(text)};
    T_STATUS_OK(nfc_apply(&p, &space));
    T_OK(p.text == text && a.used == 0);
    arena_close(&a);
}

TEST(origin_is_the_cluster)
{
    Arena      a = {0};
    PieceSpace space = {&a, true};
    Piece      p = {.text = "abe\u0301c", .n = 6, .base = 100};
    T_STATUS_OK(nfc_apply(&p, &space));
    static const int64_t WANT[] = {100, 101, 102, 102, 105};
    T_OK(p.n == 5);
    for (int64_t i = 0; i < p.n; i++)
        T_OK(piece_origin(&p, i) == WANT[i]);
    arena_close(&a);
}

/* Sorting 200 000 marks of two classes on one letter must not be quadratic. */
TEST(long_run_of_marks)
{
    enum { N = 100000 };
    Arena      a = {0};
    PieceSpace space = {&a, false};
    char      *text = arena_raw(&a, 1 + 4 * N, 1);
    T_OK(text);
    text[0] = 'q';
    for (int i = 0; i < N; i++)
        memcpy(text + 1 + 4 * i, "\u0307\u0323", 4);
    Piece p = {.text = text, .n = 1 + 4 * N};
    T_STATUS_OK(nfc_apply(&p, &space));
    T_OK(p.n == 1 + 4 * N);
    for (int i = 0; i < N; i++) {
        T_OK(memcmp(p.text + 1 + 2 * i, "\u0323", 2) == 0);
        T_OK(memcmp(p.text + 1 + 2 * N + 2 * i, "\u0307", 2) == 0);
    }
    arena_close(&a);
}
