/* check.c - runs the registered tests of one program. */
#include "tests/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static CheckCase  *first, **last = &first;
static const char *current;
static int         n_failed, n_skipped;
static bool        current_failed;
static char        tmp_folder[64];

void check_register(CheckCase *c)
{
    *last = c;
    last = &c->next;
}

void check_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    current_failed = true;
    fprintf(stderr, "%s:%d: %s: ", file, line, current);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

void check_skip(const char *why)
{
    n_skipped++;
    printf("SKIP %s: %s\n", current, why);
}

const char *check_path(const char *relative)
{
    static char text[8][1024];
    static int  turn;
    char       *p = text[turn++ % 8];
    snprintf(p, sizeof text[0], "%s/%s", DQ_TESTS, relative);
    return p;
}

static void remove_tmp(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", tmp_folder);
    if (system(command) != 0)
        fprintf(stderr, "could not remove %s\n", tmp_folder);
}

const char *check_tmp(void)
{
    if (!tmp_folder[0]) {
        snprintf(tmp_folder, sizeof tmp_folder, "/tmp/diffquant-test-XXXXXX");
        if (!mkdtemp(tmp_folder)) {
            perror("mkdtemp");
            exit(1);
        }
        atexit(remove_tmp);
    }
    return tmp_folder;
}

float check_uniform(uint64_t *state)
{
    /* splitmix64 (Steele et al. 2014) */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(z >> 40) * 0x1p-23f - 1.0f;
}

float check_normal(uint64_t *state)
{
    double u = check_uniform(state) * 0.5 + 0.5, v = check_uniform(state);
    return (float)(sqrt(-2 * log(u + 1e-9)) * cos(3.14159265358979323846 * v));
}

int main(int argc, char **argv)
{
    int n_passed = 0;
    for (CheckCase *c = first; c; c = c->next) {
        if (argc > 1 && !strstr(c->name, argv[1]))
            continue;
        current = c->name;
        current_failed = false;
        int skipped = n_skipped;
        c->run();
        if (current_failed)
            n_failed++;
        else if (n_skipped == skipped)
            n_passed++;
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    if (n_failed)
        return 1;
    return n_skipped ? 77 : 0;
}
