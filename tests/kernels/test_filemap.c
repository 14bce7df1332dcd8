/* test_filemap.c - regular files, and what is none. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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
