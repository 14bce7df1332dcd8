/* outfile.c - write beside the target, sync, rename. */
#include "kernels/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/fdwrite.h"

/* Folder part of a path: "a/b.h5" -> "a", "b.h5" -> ".", "/b" -> "/". */
static char *folder_of(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return arena_text(a, ".", 1);
    return arena_text(a, path, slash == path ? 1 : (size_t)(slash - path));
}

Status outfile_open(OutFile *f, Arena *a, const char *path)
{
    *f = (OutFile){.path = path, .fd = -1};
    struct stat st;
    /* Renaming would put a file in the place of a device or a pipe. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        FAIL(ERR_IO, "%s: cannot be written: it is %s, expected a file or nothing", path,
             S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
    /* The process number keeps two runs apart that write the same target. */
    const char *beside = arena_printf(a, "%s.%ld.part", path, (long)getpid());
    if (!beside)
        FAIL(ERR_MEMORY, "out of memory: name of %s", path);
    f->fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0)
        FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    f->beside = beside;
    return OK;
}

Status outfile_write(OutFile *f, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        /* The kernel takes at most 2 GiB a call. */
        ssize_t done = write(f->fd, p, n < INT_MAX / 2 ? n : INT_MAX / 2);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            FAIL(ERR_IO, "%s: writing failed: %s", f->path,
                 done < 0 ? strerror(errno) : "nothing was taken");
        p += done;
        n -= (size_t)done;
    }
    return OK;
}

Status outfile_write_at(const OutFile *f, const void *data, size_t n, size_t place)
{
    return fdwrite_at(f->fd, f->path, data, n, place);
}

Status outfile_expect(const OutFile *f, size_t n)
{
    return fdwrite_room(f->fd, f->path, n);
}

void outfile_flush(const OutFile *f, size_t n, size_t place)
{
    fdwrite_flush(f->fd, n, place);
}

/* A rename is only on disk when its folder is. Some file systems refuse to sync
 * a folder (EINVAL); the file itself is synced by then. */
static Status sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (n >= sizeof folder)
        FAIL(ERR_IO, "%s: path is too long", path);
    memcpy(folder, path, n);
    folder[n] = 0;
    int fd = open(n ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return OK;  // a folder that may be written but not read
    int failed = fsync(fd) != 0 && errno != EINVAL && errno != EROFS;
    int reason = errno;
    close(fd);
    if (failed)
        FAIL(ERR_IO, "%s: syncing its folder failed: %s", path, strerror(reason));
    return OK;
}

static Status commit(OutFile *f)
{
    if (fsync(f->fd) != 0)
        FAIL(ERR_IO, "%s: writing failed: %s", f->path, strerror(errno));
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0)
        FAIL(ERR_IO, "%s: writing failed: %s", f->path, strerror(errno));
    if (rename(f->beside, f->path) != 0)
        FAIL(ERR_IO, "%s: renaming onto it failed: %s", f->path, strerror(errno));
    f->beside = NULL;
    return sync_folder(f->path);
}

Status outfile_commit(OutFile *f)
{
    CHECK(f->beside);
    Status s = commit(f);
    outfile_close(f);
    return s;
}

void outfile_close(OutFile *f)
{
    if (f->beside) {
        if (f->fd >= 0)
            close(f->fd);
        unlink(f->beside);
    }
    *f = (OutFile){.fd = -1};
}

Status outfile_try(Arena *a, const char *path)
{
    OutFile f;
    TRY(outfile_open(&f, a, path));
    outfile_close(&f);
    return OK;
}

Status outfile_save(Arena *a, const char *path, const void *data, size_t n)
{
    OutFile f;
    Status s = OK;
    GUARD(outfile_open(&f, a, path));
    GUARD(outfile_write(&f, data, n));
    s = outfile_commit(&f);
out:
    outfile_close(&f);
    return s;
}

Status outfile_folder(Arena *a, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return OK;
        FAIL(ERR_IO, "%s: is a file, expected a folder", path);
    }
    const char *above = folder_of(a, path);
    if (!above)
        FAIL(ERR_MEMORY, "out of memory: folder of %s", path);
    if (strcmp(above, path) != 0)
        TRY(outfile_folder(a, above));
    /* Another run may have made it meanwhile; "a/" was made as "a". */
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        FAIL(ERR_IO, "%s: folder cannot be made: %s", path, strerror(errno));
    return OK;
}
