/* cpu_words.h - numbers as products read them. A word is one f32, or two bf16 that follow each
 * other along the sum: their products are added in one step (vdpbf16ps). */
#ifndef DQ_CPU_WORDS_H
#define DQ_CPU_WORDS_H

#include <stdint.h>

typedef uint32_t Word __attribute__((may_alias));

enum { LOW_HALF = 0xffff };   // of a word: the first of its two bf16

/* panel [words,WORDS_PANEL] from n rows of so many words, ld apart; zeros past n. */
enum { WORDS_PANEL = 64 };
void words_panel(Word *panel, const Word *rows, int64_t ld, int64_t n, int64_t words);

/* C [rows,cols] f32, A [rows,depth], B [depth,cols] words, and their strides. */
typedef struct {
    float      *c;
    const Word *a, *b;
    int64_t     ldc, lda, ldb;
} Product;

#endif
