/* test_case.c - str.capitalize of Python. All characters were compared with Python once,
 * alone and after another letter. */
#include "analysis/text/case.h"

#include <string.h>

#include "tests/check.h"

TEST(capitalize)
{
    static const char *const ROWS[][2] = {
        {"", ""}, {"the Cat SAT", "The cat sat"}, {" A", " a"}, {"42 Is", "42 is"},
        {"\u00e9COLE", "\u00c9cole"}, {"\u00dfA", "Ssa"}, {"x\u00df", "X\u00df"},
        {"\ufb01NE", "Fine"}, {"\u01c6", "\u01c5"}, {"\u0130STANBUL", "\u0130stanbul"},
        {"x\u0130", "Xi\u0307"},
        {"\u03a3\u0391\u03a3 \u039f\u03a3.",
         "\u03a3\u03b1\u03c2 \u03bf\u03c2."},
        {"x\u023a\u0100\u0101", "X\u2c65\u0101\u0101"},
        {"\U00010428\U00010400", "\U00010400\U00010428"},
        {"x \u03a3", "X \u03c3"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Arena a = {0};
        char *out = case_capitalize(&a, ROWS[i][0], strlen(ROWS[i][0]));
        T_OK(out);
        T_TEXT(out, ROWS[i][1]);
        arena_close(&a);
    }
}
