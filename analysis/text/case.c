/* case.c - see case.h. */
#include "analysis/text/case.h"

#include <stdbool.h>
#include <string.h>

#include "analysis/text/utf8.h"

typedef struct {
    uint32_t first, last;
    int32_t  add;
    uint32_t step;
} CaseRange;

typedef struct {
    uint32_t    c;
    const char *text;
} CaseText;

#include "analysis/text/case_table.h"

enum { SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2, DOTTED_I = 0x130, LONGEST_TITLE = 6 };

#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))

/* What makes c the other case; 0 where it stays. */
static int32_t difference(const CaseRange *r, int n, uint32_t c)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (c > r[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    bool in = low < n && c >= r[low].first && (c - r[low].first) % r[low].step == 0;
    return in ? r[low].add : 0;
}

static uint32_t lower(uint32_t c)
{
    return c + (uint32_t)difference(LOWER, COUNT(LOWER), c);
}

static bool has_case(uint32_t c)
{
    return difference(LOWER, COUNT(LOWER), c) || difference(TITLE, COUNT(TITLE), c);
}

static int put_title(char *out, uint32_t c)
{
    for (int i = 0; i < COUNT(TITLE_LONG); i++)
        if (TITLE_LONG[i].c == c) {
            size_t n = strlen(TITLE_LONG[i].text);
            memcpy(out, TITLE_LONG[i].text, n);
            return (int)n;
        }
    return utf8_put(out, c + (uint32_t)difference(TITLE, COUNT(TITLE), c));
}

static int put_lower(char *out, uint32_t before, uint32_t c, uint32_t after)
{
    if (c == DOTTED_I) {   // the one letter that becomes two: i and a dot above
        memcpy(out, "i\xcc\x87", 3);
        return 3;
    }
    bool final = c == SIGMA && has_case(before) && !has_case(after);
    return utf8_put(out, final ? FINAL_SIGMA : lower(c));
}

char *case_capitalize(Arena *a, const char *text, size_t n)
{
    /* Lower case takes at most 3 bytes for 2. */
    char *out = arena_raw(a, (int64_t)(2 * n + LONGEST_TITLE + UTF8_MAX), 1);
    if (!out)
        return NULL;
    uint32_t before = 0;
    size_t   k = 0;
    for (size_t i = 0; i < n;) {
        int      step, next;
        uint32_t c = utf8_get(text + i, &step);
        bool     first = i == 0;
        i += (size_t)step;
        uint32_t after = i < n ? utf8_get(text + i, &next) : 0;
        k += (size_t)(first ? put_title(out + k, c) : put_lower(out + k, before, c, after));
        before = c;
    }
    out[k] = 0;
    return out;
}
