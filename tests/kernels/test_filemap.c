/* test_filemap.c - regular files, and what is none. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "tests/check.h"

static const char *write_file(const char *name, const char *text)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    FILE *f = fopen(path, "wb");
    if (f) {
        fwrite(text, 1, strlen(text), f);
        fclose(f);
    }
    return path;
}

TEST(filemap_shows_the_bytes)
{
    FileMap map;
    T_STATUS_OK(filemap_open(&map, write_file("a", "hello")));
    T_OK(map.size == 5 && memcmp(map.data, "hello", 5) == 0);
    filemap_close(&map);
    T_OK(!map.data && map.size == 0);
    filemap_close(&map);
}

TEST(filemap_of_an_empty_file)
{
    FileMap map;
    T_STATUS_OK(filemap_open(&map, write_file("empty", "")));
    T_OK(map.size == 0 && !map.data);
    filemap_close(&map);
}

TEST(filemap_names_what_is_wrong)
{
    FileMap map = {(const unsigned char *)"x", 1};
    T_FAILS(filemap_open(&map, "/nowhere/at/all"), ERR_IO,
            "/nowhere/at/all: No such file or directory");
    T_OK(!map.data && map.size == 0);
    T_FAILS(filemap_open(&map, check_tmp()), ERR_IO, "not a regular file");
    T_FAILS(filemap_open(&map, "/dev/null"), ERR_IO, "/dev/null: not a regular file");
}

/* Opening a pipe that nobody writes to must not wait for a writer. */
TEST(filemap_does_not_wait_for_a_pipe)
{
    FileMap map;
    char    path[256];
    snprintf(path, sizeof path, "%s/pipe", check_tmp());
    T_OK(mkfifo(path, 0600) == 0);
    T_FAILS(filemap_open(&map, path), ERR_IO, "not a regular file");
}

/* Pages of files that this process holds in memory. */
static long shared_pages(void)
{
    long  pages = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %*d %ld", &pages) != 1)
        pages = -1;
    if (f)
        fclose(f);
    return pages;
}

static long sum_of(const unsigned char *data, size_t n)
{
    long sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += data[i];
    return sum;
}

/* Wherever a part begins and ends, the bytes stay what they are. */
TEST(filemap_released_bytes_are_there_again)
{
    enum { N = 1 << 23, AT = 4097, PART = N - 9000 };
    static char text[N + 1];
    FileMap     map;
    memset(text, 'x', N);
    for (int i = 0; i < N; i += 1000)
        text[i] = (char)('A' + i / 1000 % 26);
    T_STATUS_OK(filemap_open(&map, write_file("large", text)));
    filemap_expect(map.data + AT, PART);
    long sum = sum_of(map.data, N), full = shared_pages();
    filemap_release(map.data + AT, PART);
    long left = shared_pages();
    /* The system counts in lots of pages. */
    T_OK(full < 0 || full - left > PART / sysconf(_SC_PAGESIZE) / 2);
    T_OK(sum_of(map.data, N) == sum && memcmp(map.data, text, N) == 0);
    filemap_release(map.data + N - 1, 1);
    filemap_release(map.data, 0);
    T_OK(memcmp(map.data, text, N) == 0);
    filemap_close(&map);
    filemap_release(NULL, 0);
    filemap_expect(NULL, 0);
}

/* What a process prints on stderr that reads a file cut short under it; its status. */
static int read_what_has_gone(char *said, size_t size)
{
    static char text[1 << 16];
    int         fd[2], status;
    const char *path = write_file("cut", memset(text, 'x', sizeof text - 1));
    if (pipe(fd) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        FileMap map;
        dup2(fd[1], STDERR_FILENO);
        filemap_guard();
        if (filemap_open(&map, path) == OK && truncate(path, 10) == 0)
            _exit(map.data[map.size - 1] == 'x' ? 3 : 4);
        _exit(5);
    }
    close(fd[1]);
    ssize_t n = read(fd[0], said, size - 1);
    said[n > 0 ? n : 0] = 0;
    close(fd[0]);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(a_file_cut_short_is_a_sentence)
{
    char said[256];
    T_OK(read_what_has_gone(said, sizeof said) == 1);
    T_OK(strstr(said, "a file became shorter") && strchr(said, '\n') == said + strlen(said) - 1);
}
