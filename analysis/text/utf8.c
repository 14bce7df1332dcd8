/* utf8.c - see utf8.h. */
#include "analysis/text/utf8.h"

/* Bytes of a character by its first byte; 0: no character begins so. */
static int length_by_first(unsigned c)
{
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

/* Overlong forms, surrogates and values past U+10FFFF end at the second byte. */
static bool second_fits(unsigned first, unsigned second)
{
    unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

int utf8_step(const char *text, int64_t n, bool *valid)
{
    const unsigned char *p = (const unsigned char *)text;
    int                  need = length_by_first(p[0]), have = 1;
    while (have < need && have < n &&
           (have == 1 ? second_fits(p[0], p[1]) : (p[have] & 0xc0) == 0x80))
        have++;
    *valid = have == need;
    return have;
}

uint32_t utf8_get(const char *text, int *n)
{
    const unsigned char *p = (const unsigned char *)text;
    *n = length_by_first(p[0]);
    switch (*n) {
    case 2:
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3:
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    case 4:
        return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 |
               (p[3] & 0x3fu);
    default:
        return p[0];
    }
}

int utf8_put(char out[UTF8_MAX], uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | c);
    return n;
}

bool utf8_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}
