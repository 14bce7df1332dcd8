/* filemap.c - mmap of a regular file. */
#include "kernels/filemap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static Status map_descriptor(FileMap *map, int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        FAIL(ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        FAIL(ERR_IO, "%s: not a regular file", path);
    if (st.st_size == 0)
        return OK;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        FAIL(ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    map->data = p;
    map->size = (size_t)st.st_size;
    return OK;
}

Status filemap_open(FileMap *map, const char *path)
{
    *map = (FileMap){0};
    /* Not blocking: opening a pipe nobody writes to would wait for ever. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        FAIL(ERR_IO, "%s: %s", path, strerror(errno));
    Status s = map_descriptor(map, fd, path);
    close(fd);
    return s;
}

/* Only what a signal may call. */
static void say_gone(int signal)
{
    static const char TEXT[] = "diffquant: a file became shorter, or its disk failed, while it "
                               "was read\n";
    (void)signal;
    ssize_t heard = write(STDERR_FILENO, TEXT, sizeof TEXT - 1);
    (void)heard;
    _exit(1);
}

void filemap_guard(void)
{
    struct sigaction gone = {.sa_handler = say_gone};
    sigaction(SIGBUS, &gone, NULL);
}

void filemap_close(FileMap *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    *map = (FileMap){0};
}

/* From the page that data lies in, as madvise wants it. */
static void advise(const void *data, size_t n, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data / page * page;
    if (n)
        (void)madvise((void *)begin, (uintptr_t)data - begin + n, advice);
}

void filemap_expect(const void *data, size_t n)
{
    advise(data, n, MADV_WILLNEED);
}

/* Of a private mapping that nobody writes, pages come back from the file. */
void filemap_release(const void *data, size_t n)
{
    advise(data, n, MADV_DONTNEED);
}
