/* case.h - lower and title case of UTF-8 texts, as Python's str has them. */
#ifndef DQ_TEXT_CASE_H
#define DQ_TEXT_CASE_H

#include <stddef.h>

#include "kernels/arena.h"

/* str.capitalize: the first character in title case, all others lower case, in a, with a
 * closing 0. A capital sigma is final after a letter with case that none follows; marks
 * between are not looked through, as Python does. NULL without memory. */
char *case_capitalize(Arena *a, const char *text, size_t n);

#endif
