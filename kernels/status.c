/* status.c - keeps the sentence of the last failure, one per thread. */
#include "kernels/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char last_text[1024];

Status status_make(Status code, const char *fmt, ...)
{
    /* Through a second buffer: an argument may be the old sentence. */
    char text[sizeof last_text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(last_text, sizeof last_text, "%s", text);
    return code;
}

const char *status_text(void)
{
    return last_text;
}

_Noreturn void status_panic(const char *file, int line, const char *what)
{
    fprintf(stderr, "diffquant: internal error: %s:%d: %s\n", file, line, what);
    abort();
}
