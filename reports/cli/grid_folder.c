/* grid_folder.c - OUT with its folders, for one run at a time: another, with other settings,
 * would remove the cells that this one leaves. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "kernels/outfile.h"
#include "reports/cli/grid.h"

static Status path_in(const char **out, Grid *g, const char *name)
{
    *out = arena_printf(&g->se->arena, "%s/%s", g->folder, name);
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory for the name of %s", name);
}

static Status make_folder(Grid *g, const char *name)
{
    const char *path;
    TRY(path_in(&path, g, name));
    return outfile_folder(&g->se->arena, path);
}

/* A run that was killed holds its lock until the system has taken its memory back, a moment
 * after whoever killed it may go on: then a resumed run would find it held. */
static bool held_by_another(int fd)
{
    enum { TRIES = 50, PAUSE = 100 * 1000 };   // microseconds; 5 s in all
    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return false;
        usleep(PAUSE);
    }
    return true;
}

/* The file stays: a run that removed it could remove another's. File systems without locks
 * say something else: then nothing is known. */
static Status lock(Grid *g)
{
    const char *path;
    TRY(path_in(&path, g, "cells/lock"));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (held_by_another(fd)) {
        close(fd);
        FAIL(ERR_IO, "%s: another run is writing its results there", g->folder);
    }
    g->lock = fd;
    return OK;
}

void grid_unlock(Grid *g)
{
    if (g->lock)
        close(g->lock);
    g->lock = 0;
}

static Status make_checkpoints(Grid *g)
{
    bool any = false;
    for (int i = 1; i < g->n_specs; i++)
        any |= !g->specs[i].in_memory;
    if (!any)
        return OK;
    TRY(make_folder(g, "checkpoints"));
    for (int i = 0; i < g->n_planned; i++)
        TRY(grid_checkpoints_try(g, &g->models[i]));
    return OK;
}

Status grid_folder(Grid *g)
{
    const char *page;
    TRY(make_folder(g, "cells"));   // OUT as well
    TRY(lock(g));
    TRY(make_checkpoints(g));
    TRY(path_in(&page, g, "index.html"));
    TRY(outfile_try(&g->se->arena, page));
    return outfile_try(&g->se->arena, g->h5);
}
