/* bar.c - one line that is drawn over and over, at most ten times a second. */
#include "reports/cli/bar.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/clock.h"

void bar_init(Bar *b, bool quiet)
{
    *b = (Bar){.on = !quiet && isatty(STDERR_FILENO)};
}

static void draw(const char *what, const char *unit, int64_t done, int64_t total, double rate)
{
    enum { WIDTH = 24 };
    char cells[WIDTH + 1];
    int  filled = total > 0 ? (int)(done * WIDTH / total) : 0;
    memset(cells, '.', WIDTH);
    memset(cells, '#', (size_t)filled);
    cells[WIDTH] = 0;
    fprintf(stderr, "\r\033[K%s [%s] %lld/%lld %s", what, cells, (long long)done,
            (long long)total, unit);
    if (rate > 0) {
        int left = (int)((double)(total - done) / rate);
        fprintf(stderr, ", %.0f/s, %d:%02d left", rate, left / 60, left % 60);
    }
    fflush(stderr);
}

void bar_show(Bar *b, const char *what, const char *unit, int64_t done, int64_t total)
{
    if (!b->on)
        return;
    double t = clock_seconds();
    if (strncmp(b->what, what, sizeof b->what - 1) != 0) {
        snprintf(b->what, sizeof b->what, "%s", what);
        b->began = t;
        b->shown = 0;
    }
    if (t - b->shown < 0.1 && done < total)
        return;
    b->shown = t;
    double seconds = t - b->began;
    draw(what, unit, done, total, seconds > 0.5 ? (double)done / seconds : 0);
}

void bar_clear(Bar *b)
{
    if (b->on)
        fputs("\r\033[K", stderr);
    b->what[0] = 0;
}
