/* bytemap.c - see bytemap.h. The others, in order: 0x00-0x20, 0x7f-0xa0, 0xad. */
#include "analysis/text/bytemap.h"

enum { FIRST_OTHER = 0x100, LOW = 0x21, DELETE = 0x7f, HIGH = 0xa1, SOFT_HYPHEN = 0xad };
enum { N_OTHERS = LOW + (HIGH - DELETE) + 1 };

uint32_t bytemap_char(unsigned char byte)
{
    if (byte < LOW)
        return FIRST_OTHER + byte;
    if (byte >= DELETE && byte < HIGH)
        return FIRST_OTHER + LOW + (byte - DELETE);
    if (byte == SOFT_HYPHEN)
        return FIRST_OTHER + N_OTHERS - 1;
    return byte;
}

int bytemap_byte(uint32_t c)
{
    if (c >= FIRST_OTHER + N_OTHERS)
        return -1;
    if (c < FIRST_OTHER)
        return bytemap_char((unsigned char)c) == c ? (int)c : -1;
    c -= FIRST_OTHER;
    if (c < LOW)
        return (int)c;
    return c == N_OTHERS - 1 ? SOFT_HYPHEN : (int)(c - LOW) + DELETE;
}
