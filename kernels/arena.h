/* arena.h - the memory of this program.
 * An Arena owns bytes and gives them back all at once, or down to a mark.
 * Not shared between threads while it grows. {0} is a valid empty arena. */
#ifndef DQ_ARENA_H
#define DQ_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

typedef struct ArenaBlock ArenaBlock;

typedef struct {
    ArenaBlock *top;   // newest block, linked to the older ones
    size_t      used;  // bytes handed out
    size_t      peak;  // most bytes ever handed out
    ArenaBlock *spare; // large blocks that were given back
    bool        keep;  // set by the owner: they wait here for the next use of their size. For
                       //   work that takes the same again and again: fresh pages cost more
                       //   than some of it. Until arena_close, or until none of them fits
} Arena;

typedef struct {
    ArenaBlock *top;
    size_t      top_used;
    size_t      used;
} ArenaMark;

/* n * size bytes, zeroed, aligned to 64. Never NULL for n * size == 0.
 * NULL when the product overflows or there is no memory. */
void *arena_alloc(Arena *a, int64_t n, size_t size);

/* As arena_alloc, for large tables of which most stays 0: pages that nobody writes take no
 * memory. */
void *arena_sparse(Arena *a, int64_t n, size_t size);

/* As arena_alloc, but not zeroed: for large buffers that are filled at once. */
void *arena_raw(Arena *a, int64_t n, size_t size);

/* Copy of text[0..n), with a closing 0. NULL without memory. */
char *arena_text(Arena *a, const char *text, size_t n);

/* printf into the arena. NULL without memory. */
char *arena_printf(Arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

ArenaMark arena_mark(const Arena *a);
void      arena_rewind(Arena *a, ArenaMark mark);

/* Gives back what waits (keep). */
void arena_trim(Arena *a);

/* Gives everything back; the arena is empty and usable again. */
void arena_close(Arena *a);

/* For tests: the k-th allocation from now (1 is the next) fails, as do all
 * after it; 0 ends that. Counts over all arenas of the process. */
void arena_fail_at(int64_t k);

/* p = n zeroed items of p's own type, or the function returns ERR_MEMORY. */
#define ARENA_NEW(p, arena, n)                                               \
    do {                                                                     \
        (p) = (__typeof__(p))arena_alloc((arena), (n), sizeof *(p));         \
        if (!(p))                                                            \
            return status_make(ERR_MEMORY, "out of memory: %lld items of "   \
                               "%zu bytes", (long long)(n), sizeof *(p));    \
    } while (0)

#endif
