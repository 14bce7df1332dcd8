/* cpu_gram.h - the kernel of cpu_gram.c, once an instruction set. */
#ifndef DQ_CPU_GRAM_H
#define DQ_CPU_GRAM_H

#include <stdint.h>

/* x lies in panels of so many columns, row after row: a panel's row is a line of the cache. */
enum { GRAM_PANEL = 16, GRAM_ROWS = 8, GRAM_COLS = 3 * GRAM_PANEL };

/* c [m,n] += a^T b: m <= GRAM_ROWS columns of a panel from a on, n <= GRAM_COLS columns of the
 * panels from b on, which lie `panel` floats apart; T rows of both, all GRAM_COLS can be read.
 * Rows of c are ldc apart. */
typedef void GramTile(double *c, int64_t ldc, int64_t m, int64_t n, const float *a,
                      const float *b, int64_t panel, int64_t T);

extern GramTile gram_plain, gram_avx2, gram_avx512;

#endif
