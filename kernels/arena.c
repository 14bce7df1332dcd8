/* arena.c - blocks of memory in a list; the only place that calls malloc. */
#include "kernels/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/size.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { ALIGN = 64, BLOCK_BYTES = 1 << 20, HUGE_PAGE = 2 << 20 };
enum { SHARED_FROM = 1 << 16, SHARED_BYTES = 8 * HUGE_PAGE };  // see block_capacity

struct ArenaBlock {
    ArenaBlock *below;
    size_t      capacity;
    size_t      used;
    size_t      touched;   // bytes from here on are 0, as the system gave them
    bool        mapped;    // false: nothing is known to be 0
};

/* The header takes one aligned unit, so that data starts aligned. */
static_assert(sizeof(ArenaBlock) <= ALIGN, "block header fits one unit");

static int64_t fail_countdown;  // 0: never fail, by arena_fail_at
static int     failing;

void arena_fail_at(int64_t k)
{
    fail_countdown = k;
    failing = 0;
}

static int must_fail(void)
{
    if (fail_countdown > 0 && --fail_countdown == 0)
        failing = 1;
    return failing;
}

/* Under the address sanitizer a spare block must not be touched, as if it were freed. */
static void poison(ArenaBlock *b)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_poison_memory_region((char *)b + ALIGN, b->capacity);
#else
    (void)b;
#endif
}

static void unpoison(ArenaBlock *b)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region((char *)b + ALIGN, b->capacity);
#else
    (void)b;
#endif
}

/* Memory of a block. Large ones come and go with each layer: in pages of 4 KiB the system
 * would take longer to hand them out than it takes to fill them. The last piece is left to
 * those: a matrix of whole MiB with its header would take a large page for 64 bytes. */
static void *block_memory(size_t bytes)
{
    if (bytes < 2 * HUGE_PAGE)
        return aligned_alloc(ALIGN, bytes);
    size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void  *p = aligned_alloc(HUGE_PAGE, whole);
    if (p)
        (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);  // a wish: else right too
    return p;
}

/* Pages of zeros, which take memory when they are written. */
static ArenaBlock *mapped_block(size_t capacity)
{
    void *p = mmap(NULL, ALIGN + capacity, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    ArenaBlock *b = p;
    b->capacity = capacity;
    b->mapped = true;
    return b;
}

static void free_block(ArenaBlock *b)
{
    if (b->mapped)
        (void)munmap(b, ALIGN + b->capacity);
    else
        free(b);
}

/* --- blocks that wait --- */

static bool is_large(size_t capacity)
{
    return ALIGN + capacity >= 2 * HUGE_PAGE;
}

/* The smallest that fits, out of the list. */
static ArenaBlock *take_spare(Arena *a, size_t capacity)
{
    ArenaBlock **best = NULL;
    for (ArenaBlock **b = &a->spare; *b; b = &(*b)->below)
        if ((*b)->capacity >= capacity && (!best || (*b)->capacity < (*best)->capacity))
            best = b;
    if (!best)
        return NULL;
    ArenaBlock *b = *best;
    *best = b->below;
    unpoison(b);
    return b;
}

void arena_trim(Arena *a)
{
    while (a->spare) {
        ArenaBlock *b = a->spare;
        a->spare = b->below;
        unpoison(b);
        free_block(b);
    }
}

static void give_back(Arena *a, ArenaBlock *b)
{
    if (!a->keep || !is_large(b->capacity) || b->mapped) {
        free_block(b);
        return;
    }
    b->below = a->spare;
    a->spare = b;
    poison(b);
}

/* Where no spare fits they all go first: what is held stays near the most that was used. */
static ArenaBlock *new_block(Arena *a, size_t capacity)
{
    ArenaBlock *b = is_large(capacity) ? take_spare(a, capacity) : NULL;
    if (b)
        return b;
    if (is_large(capacity))
        arena_trim(a);
    b = block_memory(ALIGN + capacity);
    if (b)
        *b = (ArenaBlock){.capacity = capacity, .touched = capacity};
    return b;
}

/* Matrices too small for large pages of their own share some, where blocks are kept: a step of
 * generation reads all weights, which from pages of 4 KiB takes up to half as long again. */
static size_t block_capacity(const Arena *a, size_t bytes)
{
    if (a->keep && bytes >= SHARED_FROM && !is_large(bytes))
        return SHARED_BYTES - ALIGN;
    return bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
}

static ArenaBlock *push_block(Arena *a, ArenaBlock *b)
{
    if (!b)
        return NULL;
    b->below = a->top;
    b->used = 0;
    a->top = b;
    return b;
}

/* One byte more: never empty. */
static size_t whole_units(size_t bytes)
{
    return (bytes + ALIGN) / ALIGN * ALIGN;
}

/* The top block, with room for n * size bytes, or NULL. */
static ArenaBlock *make_room(Arena *a, int64_t n, size_t size, bool sparse)
{
    size_t bytes;
    if (n < 0 || !size_mul((size_t)n, size, &bytes) || bytes > SIZE_MAX / 4)
        return NULL;
    if (must_fail())
        return NULL;
    bytes = whole_units(bytes);
    ArenaBlock *b = a->top;
    if (b && b->capacity - b->used >= bytes && (b->mapped || !sparse))
        return b;
    if (sparse)
        return push_block(a, mapped_block(bytes > SHARED_BYTES - ALIGN ? bytes
                                                                       : SHARED_BYTES - ALIGN));
    return push_block(a, new_block(a, block_capacity(a, bytes)));
}

/* From a block with room. */
static void *take(Arena *a, ArenaBlock *b, size_t bytes)
{
    void *p = (char *)b + ALIGN + b->used;
    bytes = whole_units(bytes);
    b->used += bytes;
    b->touched = b->used > b->touched ? b->used : b->touched;
    a->used += bytes;
    a->peak = a->used > a->peak ? a->used : a->peak;
    return p;
}

static void *take_zeroed(Arena *a, ArenaBlock *b, size_t bytes)
{
    if (!b)
        return NULL;
    size_t before = b->used, dirty = b->touched > before ? b->touched - before : 0;
    void  *p = take(a, b, bytes);
    memset(p, 0, dirty < bytes ? dirty : bytes);
    return p;
}

void *arena_raw(Arena *a, int64_t n, size_t size)
{
    ArenaBlock *b = make_room(a, n, size, false);
    return b ? take(a, b, (size_t)n * size) : NULL;
}

void *arena_alloc(Arena *a, int64_t n, size_t size)
{
    return take_zeroed(a, make_room(a, n, size, false), (size_t)n * size);
}

void *arena_sparse(Arena *a, int64_t n, size_t size)
{
    return take_zeroed(a, make_room(a, n, size, true), (size_t)n * size);
}

char *arena_text(Arena *a, const char *text, size_t n)
{
    char *p = arena_raw(a, (int64_t)n + 1, 1);
    if (p) {
        memcpy(p, text, n);
        p[n] = 0;
    }
    return p;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *p = n < 0 ? NULL : arena_raw(a, (int64_t)n + 1, 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return p;
}

ArenaMark arena_mark(const Arena *a)
{
    return (ArenaMark){a->top, a->top ? a->top->used : 0, a->used};
}

void arena_rewind(Arena *a, ArenaMark mark)
{
    while (a->top != mark.top) {
        ArenaBlock *b = a->top;
        CHECK(b);  // the mark is of this arena and not yet rewound past
        a->top = b->below;
        give_back(a, b);
    }
    if (a->top)
        a->top->used = mark.top_used;
    a->used = mark.used;
}

void arena_close(Arena *a)
{
    arena_rewind(a, (ArenaMark){0});
    arena_trim(a);
    *a = (Arena){.keep = a->keep};
}
