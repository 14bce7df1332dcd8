/* ref_numbers.c - finds "key": in a mapped file and reads what follows. */
#include "tests/kernels/ref_numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/filemap.h"
#include "tests/check.h"

/* To wide or to narrow, whichever is there. */
static Status read_list(double *wide, float *narrow, int64_t n, const char *text,
                        const char *end)
{
    for (int64_t i = 0; i < n; i++) {
        char number[64] = {0};
        while (text < end && strchr(" \n[],:", *text))
            text++;
        for (int j = 0; j < 63 && text < end && strchr("+-.0123456789eE", *text); j++)
            number[j] = *text++;
        if (!number[0])
            FAIL(ERR_FORMAT, "%lld numbers, need %lld", (long long)i, (long long)n);
        if (wide)
            wide[i] = strtod(number, NULL);
        else
            narrow[i] = strtof(number, NULL);
    }
    return OK;
}

static Status read_key(double *wide, float *narrow, int64_t n, const char *file,
                       const char *key)
{
    Status s = OK;
    FileMap map = {0};
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    GUARD(filemap_open(&map, check_path(file)));
    const char *text = (const char *)map.data, *end = text + map.size;
    const char *at = memmem(text, map.size, quoted, strlen(quoted));
    if (at)
        s = read_list(wide, narrow, n, at + strlen(quoted), end);
    else
        s = STATUS(ERR_FORMAT, "%s: no %s", file, quoted);
out:
    filemap_close(&map);
    return s;
}

Status ref_numbers(double *out, int64_t n, const char *file, const char *key)
{
    return read_key(out, NULL, n, file, key);
}

Status ref_floats(float *out, int64_t n, const char *file, const char *key)
{
    return read_key(NULL, out, n, file, key);
}
