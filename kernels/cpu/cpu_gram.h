/* cpu_gram.h - the kernels of cpu_gram.c, once an instruction set. */
#ifndef DQ_CPU_GRAM_H
#define DQ_CPU_GRAM_H

#include <stdint.h>

/* x lies in panels of so many columns, row after row: 16 floats, or pairs of rows as bf16, the
 * first in the low half of a word. A row, or pair of rows, is a line of the cache. */
enum { GRAM_PANEL = 16, GRAM_ROWS = 8, GRAM_COLS = 3 * GRAM_PANEL };

/* c [m,n] += a^T b: m <= GRAM_ROWS columns of a panel from a on, n <= GRAM_COLS columns of the
 * panels from b on, which lie `panel` words apart; so many lines of both, of which all
 * GRAM_COLS columns can be read. Rows of c are ldc apart. */
typedef void GramTile(double *c, int64_t ldc, int64_t m, int64_t n, const uint32_t *a,
                      const uint32_t *b, int64_t panel, int64_t lines);
/* A line of a panel from a row of it, or from two: [GRAM_PANEL] each. */
typedef void GramLine(uint32_t *to, const float *x, const float *next);

typedef struct {
    GramTile *tile, *dots;    // of floats; of pairs, NULL where there is no such sum
    GramLine *round, *pair;   // floats rounded to bf16; pairs
} GramIsa;

extern const GramIsa gram_plain, gram_avx2, gram_avx512;

#endif
