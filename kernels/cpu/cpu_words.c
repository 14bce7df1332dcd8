/* cpu_words.c - rows of words side by side.
 * panel[i,j] = row j's word i
 * shapes  n rows of so many words, ld apart -> [words,WORDS_PANEL]; columns past n are 0
 * cost    8 bytes a word, four by four
 * NaN     is moved like any word
 * test    tests/kernels/test_linear.c and test_attention.c: ragged rows and words */
#include "kernels/cpu/cpu_words.h"

#include <string.h>

typedef Word Quad __attribute__((vector_size(16)));
typedef Word QuadAt __attribute__((vector_size(16), aligned(4), may_alias));

/* 4 rows x 4 words -> 4 words x 4 rows. */
static void transpose_4x4(Word *to, const Word *from, int64_t ld)
{
    Quad a = *(const QuadAt *)from, b = *(const QuadAt *)(from + ld);
    Quad c = *(const QuadAt *)(from + 2 * ld), d = *(const QuadAt *)(from + 3 * ld);
    Quad ab = __builtin_shuffle(a, b, (Quad){0, 4, 1, 5});
    Quad cd = __builtin_shuffle(c, d, (Quad){0, 4, 1, 5});
    Quad ab2 = __builtin_shuffle(a, b, (Quad){2, 6, 3, 7});
    Quad cd2 = __builtin_shuffle(c, d, (Quad){2, 6, 3, 7});
    *(QuadAt *)to = __builtin_shuffle(ab, cd, (Quad){0, 1, 4, 5});
    *(QuadAt *)(to + WORDS_PANEL) = __builtin_shuffle(ab, cd, (Quad){2, 3, 6, 7});
    *(QuadAt *)(to + 2 * WORDS_PANEL) = __builtin_shuffle(ab2, cd2, (Quad){0, 1, 4, 5});
    *(QuadAt *)(to + 3 * WORDS_PANEL) = __builtin_shuffle(ab2, cd2, (Quad){2, 3, 6, 7});
}

void words_panel(Word *panel, const Word *rows, int64_t ld, int64_t n, int64_t words)
{
    int64_t quads = n / 4 * 4, whole = words / 4 * 4;
    if (n < WORDS_PANEL)
        memset(panel, 0, (size_t)words * WORDS_PANEL * sizeof *panel);
    for (int64_t j = 0; j < quads; j += 4) {
        for (int64_t i = 0; i < whole; i += 4)
            transpose_4x4(panel + i * WORDS_PANEL + j, rows + j * ld + i, ld);
        for (int64_t i = whole; i < words; i++)
            for (int64_t l = j; l < j + 4; l++)
                panel[i * WORDS_PANEL + l] = rows[l * ld + i];
    }
    for (int64_t j = quads; j < n; j++)
        for (int64_t i = 0; i < words; i++)
            panel[i * WORDS_PANEL + j] = rows[j * ld + i];
}
