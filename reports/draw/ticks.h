/* ticks.h - round numbers for axes and colour bars. */
#ifndef DQ_TICKS_H
#define DQ_TICKS_H

#include <stdint.h>

enum { TICKS_MAX = 24 };

typedef struct {
    int    n;
    double at[TICKS_MAX];
    char   text[TICKS_MAX][24];
} Ticks;

/* Multiples of 1, 2 or 5 times a power of ten within [lo,hi], at most `most`. */
void ticks_linear(Ticks *t, double lo, double hi, int most);
/* 0 < lo <= hi: decades with 2 and 5 between them where few, or every second,
 * third, ... decade where many. Falls back on ticks_linear in a narrow range. */
void ticks_log(Ticks *t, double lo, double hi, int most);
/* Whole numbers 0 <= i < n, for the cells of a matrix. */
void ticks_index(Ticks *t, int64_t n, int most);

#endif
