/* test_utf8.c - characters, and the repair of texts that are not UTF-8. */
#include <string.h>

#include "analysis/text/piece.h"
#include "analysis/text/utf8.h"
#include "tests/check.h"

TEST(every_character_there_and_back)
{
    for (uint32_t c = 0; c < 0x110000; c++) {
        char text[UTF8_MAX];
        bool valid;
        int  n = utf8_put(text, c), back;
        bool surrogate = c >= 0xd800 && c < 0xe000;
        T_OK(n == (c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4));
        T_OK(utf8_step(text, n, &valid) == (surrogate ? 1 : n) && valid == !surrogate);
        T_OK(utf8_get(text, &back) == c && back == n);
    }
}

/* What Python's bytes.decode(errors="replace") gives; '?' stands for U+FFFD. */
TEST(repair_as_python_does)
{
    static const struct {
        const char *broken, *repaired;
    } CASES[] = {
        {"abc", "abc"},
        {"\xff", "?"},
        {"a\xc3", "a?"},
        {"\xc3(", "?("},
        {"\xe2\x82", "?"},
        {"\xe2(\xa1", "?(?"},
        {"\xf0\x9f\x98", "?"},
        {"\xf0\x9f\x98z", "?z"},
        {"\xed\xa0\x80", "???"},
        {"\xc0\xaf", "??"},
        {"\xe0\x80\xaf", "???"},
        {"\xf0\x80\x80\x80", "????"},
        {"\xf4\x90\x80\x80", "????"},
        {"\xf5\x80", "??"},
        {"\xe1\x80\xe2", "??"},
        {"12345678\x80" "12345678", "12345678?12345678"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Arena      a = {0};
        PieceSpace space = {&a, true};
        char       want[64] = "";
        Piece      p = {.text = CASES[i].broken, .n = (int64_t)strlen(CASES[i].broken)};
        int64_t    n = 0;
        for (const char *c = CASES[i].repaired; *c; c++)
            n += utf8_put(want + n, *c == '?' ? 0xfffd : (uint32_t)*c);
        T_STATUS_OK(piece_repair(&p, &space));
        T_OK(p.n == n && memcmp(p.text, want, (size_t)n) == 0);
        T_OK((p.text == CASES[i].broken) == !strchr(CASES[i].repaired, '?'));
        for (int64_t k = 1; k < p.n; k++)
            T_OK(piece_origin(&p, k) >= piece_origin(&p, k - 1));
        arena_close(&a);
    }
}

TEST(origin_goes_along)
{
    Arena       a = {0};
    PieceSpace  space = {&a, true};
    PieceWriter w;
    const Piece p = {.text = "abcdef", .n = 6, .base = 10};
    T_STATUS_OK(piece_write_begin(&w, &space, 0));
    for (int i = 0; i < 100; i++) {  // grows a few times
        T_STATUS_OK(piece_copy(&w, &p, 1, 3));
        T_STATUS_OK(piece_write(&w, "xy", 2, 99));
    }
    Piece out = piece_written(&w, &p);
    T_OK(out.n == 400 && out.base == 10);
    for (int64_t i = 0; i < out.n; i += 4) {
        T_OK(memcmp(out.text + i, "bcxy", 4) == 0);
        T_OK(piece_origin(&out, i) == 11 && piece_origin(&out, i + 1) == 12);
        T_OK(piece_origin(&out, i + 2) == 99 && piece_origin(&out, i + 3) == 99);
    }
    Piece part = piece_sub(piece_sub(out, 4, 12), 1, 3);
    T_OK(part.n == 2 && part.base == 12 && piece_origin(&part, 1) == 99);
    arena_close(&a);
}

TEST(white_space)
{
    int n = 0;
    for (uint32_t c = 0; c < 0x110000; c++)
        n += utf8_is_space(c);
    T_OK(n == 25);
    T_OK(utf8_is_space(0x85) && utf8_is_space(0x3000) && !utf8_is_space(0x180e));
    T_OK(!utf8_is_space(0x200b) && !utf8_is_space(0xfeff));
}
