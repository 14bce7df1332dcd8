/* fdwrite.h - bytes to their place in a file that is open for writing. The descriptor stays
 * the caller's; path is for messages. */
#ifndef DQ_FDWRITE_H
#define DQ_FDWRITE_H

#include <stddef.h>

#include "kernels/status.h"

/* All n bytes at byte `place`, whatever was written before, or ERR_IO (disk full and the like):
 * by many threads at once where they write different bytes. What lies between is 0. */
MUST_USE Status fdwrite_at(int fd, const char *path, const void *data, size_t n, size_t place);
/* A file of n bytes, with room on the disk where the file system can take it: a full one is
 * told before the work, and what comes to its place then costs half as much. ERR_IO. */
MUST_USE Status fdwrite_room(int fd, const char *path, size_t n);
/* Has the disk begin with n bytes from place on, which were written: a hint, so that a later
 * sync waits for less. */
void fdwrite_flush(int fd, size_t n, size_t place);

#endif
