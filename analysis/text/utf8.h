/* utf8.h - characters of UTF-8 texts. */
#ifndef DQ_TEXT_UTF8_H
#define DQ_TEXT_UTF8_H

#include <stdbool.h>
#include <stdint.h>

enum { UTF8_MAX = 4 };

/* Length of the character at text[0..n), n >= 1. Where it is malformed *valid
 * is false and the length that of the maximal ill-formed part (Unicode 3.9,
 * the practice of the W3C and of Python), at least 1. */
int utf8_step(const char *text, int64_t n, bool *valid);
/* The character at valid UTF-8, its length to *n. */
uint32_t utf8_get(const char *text, int *n);
/* Writes c < 0x110000 and returns its length. */
int utf8_put(char out[UTF8_MAX], uint32_t c);

/* White space of the Unicode standard, \s of the library. */
bool utf8_is_space(uint32_t c);

#endif
