/* progress.h - how long work tells its caller how far it is.
 * A NULL Progress, or a NULL step, tells nobody. */
#ifndef DQ_PROGRESS_H
#define DQ_PROGRESS_H

#include <stdint.h>

typedef struct {
    /* done of total tokens; what: "perplexity", "retrieval-n4". */
    void (*step)(void *context, int64_t done, int64_t total, const char *what);
    void  *context;
} Progress;

static inline void progress_step(const Progress *p, int64_t done, int64_t total,
                                 const char *what)
{
    if (p && p->step)
        p->step(p->context, done, total, what);
}

#endif
