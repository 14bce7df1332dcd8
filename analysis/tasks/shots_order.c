/* shots_order.c - examples of all classes in turn. */
#include "analysis/random.h"
#include "analysis/tasks/shots_read.h"

Status examples_alternate(int64_t *out, const Examples *e, const int64_t *items, int64_t n,
                          uint64_t *state)
{
    int64_t  L = e->n_labels, done = 0;
    int64_t *classes, *next;
    Arena    tmp = {0};
    Status   s = OK;
    classes = arena_alloc(&tmp, L, sizeof *classes);
    next = arena_alloc(&tmp, L, sizeof *next);
    GUARD(classes && next ? OK : STATUS(ERR_MEMORY, "%s: out of memory", e->path));
    for (int64_t k = 0; k < L; k++)
        classes[k] = k;
    random_shuffle(classes, L, state);
    for (int64_t turn = 0; done < n; turn++) {
        int64_t k = classes[turn % L];
        while (next[k] < n && e->at[items[next[k]]].label != k)
            next[k]++;
        if (next[k] < n)
            out[done++] = items[next[k]++];
    }
out:
    arena_close(&tmp);
    return s;
}
