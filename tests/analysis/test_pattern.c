/* test_pattern.c - what an expression written for Oniguruma matches here. Refused
 * constructs are in test_tokenizer_errors.c. */
#include <string.h>

#include "analysis/text/pattern.h"
#include "tests/check.h"

/* Matches of regex in text, in [ ] one after another. */
static const char *matches(const char *regex, const char *text)
{
    static char out[512];
    Arena       a = {0};
    PatternList list = {0};
    Pattern    *p;
    int64_t     from, to;
    out[0] = 0;
    if (pattern_compile(&p, &list, &a, "test", regex) != OK)
        return status_text();
    PatternWalk w = pattern_walk(p, text, (int64_t)strlen(text));
    while (pattern_next(&w, &from, &to) == OK && from >= 0) {
        strcat(out, "[");
        strncat(out, text + from, (size_t)(to - from));
        strcat(out, "]");
    }
    pattern_close(&list);
    arena_close(&a);
    return out;
}

TEST(finds_all)
{
    T_TEXT(matches("a+", "aab a"), "[aa][a]");
    T_TEXT(matches("x", "aab"), "");
    T_TEXT(matches("a*", "baac"), "[][aa][]");  // none right after a match
    T_TEXT(matches("(?=a)", "\u00e9aa"), "[][]");
    T_TEXT(matches("^a|b$", "ab\nab\n"), "[a][b][a][b]");
    T_TEXT(matches(".", "a\nb"), "[a][b]");
    T_TEXT(matches("\\v", "a\n\x0b"), "[\x0b]");
    T_TEXT(matches("\\u00e9", "e\u00e9"), "[\u00e9]");
    T_TEXT(matches("(?i:'s)", "'S '\u017f 's"), "['S]['\u017f]['s]");
}

TEST(classes_are_the_librarys)
{
    T_TEXT(matches("\\s+", "a \t\xc2\x85\u3000b\u180e\u200b"), "[ \t\xc2\x85\u3000]");
    T_TEXT(matches("\\S", " \u180e"), "[\u180e]");
    T_TEXT(matches("[^\\s\\p{L}]+", "a1 \u180e\u00e9"), "[1][\u180e]");
    T_TEXT(matches("\\w+", "a_1\u0301\u203f\u24b6\u00b2-"), "[a_1\u0301\u203f\u24b6\u00b2]");
    T_TEXT(matches("\\W", "a\u0301-"), "[-]");
    T_TEXT(matches("\\d", "1\u0663\u00b2"), "[1][\u0663]");
    /* newer than Unicode 14, PCRE2 10.42's tables */
    T_TEXT(matches("\\p{L}+", "a\U00031350\U0002ebf0\u1c89."), "[a\U00031350\U0002ebf0\u1c89]");
    T_TEXT(matches("\\P{L}", "\U00031350\u1c89."), "[.]");
    T_TEXT(matches("\\p{^L}", "\U00031350\u1c89."), "[.]");
    T_TEXT(matches("[\\p{Lu}x]", "\u1c89\u1c8ax"), "[\u1c89][x]");
    T_TEXT(matches("\\p{Nd}", "\U00010d40"), "[\U00010d40]");
    T_TEXT(matches("\\p{Han}", "a\u6f22"), "[\u6f22]");
}

TEST(literal_texts)
{
    Arena    a = {0};
    Pattern *p;
    int64_t  from, to;
    T_STATUS_OK(pattern_literal(&p, &a, "aa", 2));
    PatternWalk w = pattern_walk(p, "xaaaa.aa", 8);
    static const int64_t WANT[] = {1, 3, 6, -1};
    for (int i = 0; i < 4; i++) {
        T_STATUS_OK(pattern_next(&w, &from, &to));
        T_OK(from == WANT[i] && (from < 0 || to == from + 2));
    }
    arena_close(&a);
}

/* Nested repetition that would overflow a small stack either works or says so. */
TEST(deep_matches_do_not_crash)
{
    Arena       a = {0};
    PatternList list = {0};
    Pattern    *p;
    int64_t     from, to, n = 2000000;
    char       *text = arena_raw(&a, n, 1);
    T_OK(text);
    memset(text, 'a', (size_t)n);
    T_STATUS_OK(pattern_compile(&p, &list, &a, "test", "(?:a|b)*c|a+"));
    PatternWalk w = pattern_walk(p, text, n);
    Status      s = pattern_next(&w, &from, &to);
    T_OK(s == ERR_RANGE || (s == OK && from == 0 && to == n));
    if (s == ERR_RANGE)
        T_OK(strstr(status_text(), "regular expression failed at byte 0"));
    pattern_close(&list);
    arena_close(&a);
}
