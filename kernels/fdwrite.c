/* fdwrite.c - bytes to their place in a file that is open for writing. */
#include "kernels/fdwrite.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

Status fdwrite_at(int fd, const char *path, const void *data, size_t n, size_t place)
{
    const char *p = data;
    while (n > 0) {
        /* The kernel takes at most 2 GiB a call. */
        ssize_t done = pwrite(fd, p, n < INT_MAX / 2 ? n : INT_MAX / 2, (off_t)place);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            FAIL(ERR_IO, "%s: writing failed: %s", path,
                 done < 0 ? strerror(errno) : "nothing was taken");
        p += done;
        place += (size_t)done;
        n -= (size_t)done;
    }
    return OK;
}

Status fdwrite_room(int fd, const char *path, size_t n)
{
    int failed;
    do
        failed = fallocate(fd, 0, 0, (off_t)n);
    while (failed && errno == EINTR);
    if (failed && (errno == EOPNOTSUPP || errno == ENOSYS))
        failed = ftruncate(fd, (off_t)n);
    if (failed)
        FAIL(ERR_IO, "%s: no room for its %zu bytes: %s", path, n, strerror(errno));
    return OK;
}

void fdwrite_flush(int fd, size_t n, size_t place)
{
    (void)sync_file_range(fd, (off_t)place, (off_t)n, SYNC_FILE_RANGE_WRITE);
}
