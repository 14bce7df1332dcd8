/* outfolder.h - a folder that appears whole or not at all: OUT.partial is filled and
 * takes the name OUT at the end. The handle owns the lock on OUT.partial. */
#ifndef DQ_OUTFOLDER_H
#define DQ_OUTFOLDER_H

#include <stdbool.h>

#include "kernels/arena.h"

typedef struct {
    const char *target;   // OUT, absolute, without symlinks
    const char *partial;  // OUT.partial
    bool        replace;  // OUT is there and goes
    int         lock;     // descriptor of OUT.partial, locked; valid while open
    bool        open;
} OutFolder;

/* Looks, changes nothing. ERR_USAGE where path is `source` (a folder that is read), lies
 * in it or holds it; where it is there and is a file, may not be overwritten, or holds
 * anything but what a checkpoint does. An empty folder is as good as none. */
MUST_USE Status outfolder_check(OutFolder *f, Arena *a, const char *path, const char *source,
                                bool overwrite);
/* Makes OUT.partial and the folders above it, or opens what a run left there, and locks it.
 * ERR_USAGE where another run has it, or it holds files that are no run's; ERR_IO. */
MUST_USE Status outfolder_open(OutFolder *f, Arena *scratch);
/* Removes the files in OUT.partial whose names end so; "" all. ERR_IO. */
MUST_USE Status outfolder_clear(const OutFolder *f, const char *ending);
/* Syncs and renames; the old OUT is removed after. Closes the handle when it succeeds. */
MUST_USE Status outfolder_commit(OutFolder *f);
/* Gives up: with keep, OUT.partial stays. Zeroed, or twice, is fine. */
void outfolder_close(OutFolder *f, bool keep);

#endif
