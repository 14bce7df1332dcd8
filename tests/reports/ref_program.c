/* ref_program.c - see ref_program.h. */
#include "tests/reports/ref_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/check.h"

static void slurp(char *text, size_t size, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    FILE  *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
}

Outcome *run_after(const char *before, const char *arguments)
{
    static Outcome o;
    char           command[4096];
    snprintf(command, sizeof command, "cd '%s' && %s '%s' %s >stdout 2>stderr </dev/null",
             check_tmp(), before, DQ_PROGRAM, arguments);
    int status = system(command);
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    slurp(o.out, sizeof o.out, "stdout");
    slurp(o.err, sizeof o.err, "stderr");
    return &o;
}

Outcome *run(const char *arguments)
{
    return run_after("", arguments);
}

void write_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    FILE *f = fopen(path, "wb");
    fputs(text, f);
    fclose(f);
}

bool exists(const char *name)
{
    char        path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    return stat(path, &st) == 0;
}

/* Exit status of cmp: 0 the same, 1 they differ, 2 one is not there. */
static int compare_files(const char *one, const char *other)
{
    char command[512];
    snprintf(command, sizeof command, "cd '%s' && cmp -s %s %s", check_tmp(), one, other);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool differ(const char *one, const char *other)
{
    return compare_files(one, other) == 1;
}

bool same(const char *one, const char *other)
{
    return compare_files(one, other) == 0;
}

bool system_in_tmp(const char *command)
{
    char text[512];
    snprintf(text, sizeof text, "cd '%s' && %s", check_tmp(), command);
    return system(text) == 0;
}

bool fails(const Outcome *o, int code, const char *word, const char *other)
{
    const char *end = strchr(o->err, '\n');
    bool        one_line = end && end[1] == 0;
    if (o->code == code && one_line && strstr(o->err, word) && strstr(o->err, other))
        return true;
    fprintf(stderr, "exit %d, wanted %d with \"%s\" and \"%s\": %s\n", o->code, code, word,
            other, o->err);
    return false;
}

const char *with_model(const char *format, const char *model)
{
    static char text[2048];
    snprintf(text, sizeof text, format, check_path(model));
    return text;
}
