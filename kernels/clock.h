/* clock.h - time that only goes on. */
#ifndef DQ_CLOCK_H
#define DQ_CLOCK_H

#include <time.h>

/* Seconds since some moment before the program began. */
static inline double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
