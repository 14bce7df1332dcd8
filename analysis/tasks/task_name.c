/* task_name.c - see task_name.h. */
#include "analysis/tasks/task_name.h"

#include <string.h>

#include "analysis/text/utf8.h"

/* Length of the character at text, which may stay where *keep. */
static int next_character(const char *text, bool *keep)
{
    int step = utf8_step(text, (int64_t)strlen(text), keep);
    if (!*keep)
        return step;
    uint32_t c = utf8_get(text, &step);
    *keep = c != ',' && c >= 0x20 && (c < 0x7f || c >= 0xa0);
    return step;
}

char *task_name(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    const char *dot = strrchr(stem, '.');
    char       *name = arena_text(a, stem, dot && dot > stem ? (size_t)(dot - stem)
                                                             : strlen(stem));
    char       *to = name;
    for (const char *from = name; name && *from;) {
        bool keep;
        int  step = next_character(from, &keep);
        if (keep)
            memmove(to, from, (size_t)step);
        else
            *to = '_';
        to += keep ? step : 1;
        from += step;
    }
    if (name)
        *to = 0;
    return name;
}
