/* hash.h - FNV-1a in 64 bits: tells whether bytes are those that they were. Not against
 * someone who wants them to look so. */
#ifndef DQ_HASH_H
#define DQ_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_BEGIN 0xcbf29ce484222325u

/* h: HASH_BEGIN, or what the bytes before gave. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

#endif
