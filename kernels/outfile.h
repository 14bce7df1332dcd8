/* outfile.h - a file that appears whole or not at all.
 * Written under another name beside its target, synced, then renamed; until
 * outfile_commit has returned OK the old target (or nothing) is what is there.
 * The handle owns the descriptor and, until then, the file beside. */
#ifndef DQ_OUTFILE_H
#define DQ_OUTFILE_H

#include <stddef.h>

#include "kernels/arena.h"

typedef struct {
    const char *path;     // the target, as given
    const char *beside;   // what is being written; NULL when closed
    int         fd;
} OutFile;

/* ERR_IO names the path and the system's reason: folder missing or not
 * writable, target is a folder or a device. Strings live in a. */
MUST_USE Status outfile_open(OutFile *f, Arena *a, const char *path);
/* Opens and gives up: says before long work whether outfile_open would fail. */
MUST_USE Status outfile_try(Arena *a, const char *path);
/* All n bytes, or ERR_IO (disk full and the like). */
MUST_USE Status outfile_write(OutFile *f, const void *data, size_t n);
/* The same at byte `place` of the file, whatever was written before: by many threads at once
 * where they write different bytes. What lies between is 0. */
MUST_USE Status outfile_write_at(const OutFile *f, const void *data, size_t n, size_t place);
/* Takes the room for a file of n bytes, where the file system can: a full disk is told before
 * the work, and what comes to its place then costs half as much. ERR_IO. */
MUST_USE Status outfile_expect(const OutFile *f, size_t n);
/* Has the disk begin with n bytes from place on, which were written: a hint, and what
 * outfile_commit then waits for is less. */
void outfile_flush(const OutFile *f, size_t n, size_t place);
/* Syncs, renames onto the target, syncs the folder. On failure as outfile_close. */
MUST_USE Status outfile_commit(OutFile *f);
/* Gives up what was not committed. A zeroed handle, or twice, is fine. */
void outfile_close(OutFile *f);

/* Open, write, commit. */
MUST_USE Status outfile_save(Arena *a, const char *path, const void *data, size_t n);
/* Makes the folder and those above it. ERR_IO where a part is a file or may
 * not be made; a folder that is there is fine. */
MUST_USE Status outfile_folder(Arena *a, const char *path);

#endif
