/* bar.h - progress on stderr: what, a bar, rate and time left. Only on a
 * terminal, and never with --quiet. */
#ifndef DQ_BAR_H
#define DQ_BAR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool        on;
    double      began, shown;   // seconds
    char        what[64];
} Bar;

void bar_init(Bar *b, bool quiet);
/* done of total units ("tokens"). A change of `what` begins anew. */
void bar_show(Bar *b, const char *what, const char *unit, int64_t done, int64_t total);
/* Wipes the line, so that what is printed next stands alone. */
void bar_clear(Bar *b);

#endif
