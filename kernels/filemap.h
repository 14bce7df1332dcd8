/* filemap.h - a file mapped read-only. The handle owns the mapping. */
#ifndef DQ_FILEMAP_H
#define DQ_FILEMAP_H

#include <stddef.h>

#include "kernels/status.h"

typedef struct {
    const unsigned char *data;  // NULL when empty or closed
    size_t               size;
} FileMap;

/* ERR_IO names the path and the system's reason (a folder counts as one). */
MUST_USE Status filemap_open(FileMap *map, const char *path);
/* From now on, for the whole process: reading what has gone, because somebody cut a mapped file
 * short or its disk failed, ends the process with one line and code 1, not with SIGBUS. */
void filemap_guard(void);
/* Closing a zeroed handle, or twice, is fine. */
void filemap_close(FileMap *map);

/* Of n bytes inside a mapping, which may begin and end anywhere in it. Hints: nothing
 * fails, and the bytes read the same before and after. */
void filemap_expect(const void *data, size_t n);   // will be read soon
void filemap_release(const void *data, size_t n);  // have been read: take no memory

#endif
