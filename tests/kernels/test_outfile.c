/* test_outfile.c - files that appear whole or not at all. */
#include "kernels/outfile.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

static const char *tmp(const char *name)
{
    static char text[4][256];
    static int turn;
    char *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "%s/%s", check_tmp(), name);
    return p;
}

/* First bytes of a file, "" if there is none. */
static const char *content(const char *path)
{
    static char text[64];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    return text;
}

static int n_files(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

TEST(places_in_any_order)
{
    Arena a = {0};
    OutFile f;
    T_STATUS_OK(outfile_open(&f, &a, tmp("places")));
    T_STATUS_OK(outfile_expect(&f, 9));
    T_STATUS_OK(outfile_write(&f, "ab", 2));
    T_STATUS_OK(outfile_write_at(&f, "end", 3, 6));
    outfile_flush(&f, 3, 6);
    T_STATUS_OK(outfile_write_at(&f, "B", 1, 1));
    T_STATUS_OK(outfile_write(&f, "cd", 2));  // goes on where it was
    T_STATUS_OK(outfile_commit(&f));
    T_OK(memcmp(content(tmp("places")), "aBcd\0\0end", 10) == 0);
    unlink(tmp("places"));
    T_STATUS_OK(outfile_open(&f, &a, tmp("places")));
    T_FAILS(outfile_expect(&f, (size_t)1 << 62), ERR_IO, "places: no room for its 4611686");
    outfile_close(&f);
    T_OK(n_files(check_tmp()) == 0);
    arena_close(&a);
}

TEST(a_pipe_or_device_keeps_its_place)
{
    Arena a = {0};
    OutFile f;
    struct stat st;
    T_OK(mkfifo(tmp("pipe"), 0600) == 0);
    T_FAILS(outfile_open(&f, &a, tmp("pipe")), ERR_IO, "a device or a pipe");
    T_FAILS(outfile_try(&a, tmp("pipe")), ERR_IO, "a device or a pipe");
    T_OK(stat(tmp("pipe"), &st) == 0 && S_ISFIFO(st.st_mode));
    unlink(tmp("pipe"));
    T_STATUS_OK(outfile_try(&a, tmp("new")));
    T_OK(n_files(check_tmp()) == 0);  // a try leaves nothing
    arena_close(&a);
}

TEST(a_file_appears_when_committed)
{
    Arena a = {0};
    OutFile f;
    T_STATUS_OK(outfile_open(&f, &a, tmp("out")));
    T_STATUS_OK(outfile_write(&f, "abc", 3));
    T_OK(access(tmp("out"), F_OK) != 0);
    T_STATUS_OK(outfile_write(&f, "def", 3));
    T_STATUS_OK(outfile_commit(&f));
    T_TEXT(content(tmp("out")), "abcdef");
    outfile_close(&f);  // twice is fine
    T_OK(n_files(check_tmp()) == 1);
    arena_close(&a);
}

TEST(given_up_it_leaves_what_was_there)
{
    Arena a = {0};
    OutFile f;
    T_STATUS_OK(outfile_save(&a, tmp("out"), "old", 3));
    T_STATUS_OK(outfile_open(&f, &a, tmp("out")));
    T_STATUS_OK(outfile_write(&f, "newer", 5));
    outfile_close(&f);
    T_TEXT(content(tmp("out")), "old");
    T_OK(n_files(check_tmp()) == 1);
    T_STATUS_OK(outfile_save(&a, tmp("out"), "new", 3));
    T_TEXT(content(tmp("out")), "new");
    arena_close(&a);
}

/* The limit on file sizes stands in for a full disk: the write comes back short,
 * then fails, as there. */
TEST(a_full_disk_is_told_and_leaves_the_old_file)
{
    Arena a = {0};
    struct rlimit old, small;
    static char big[100000];
    T_STATUS_OK(outfile_save(&a, tmp("out"), "old", 3));
    signal(SIGXFSZ, SIG_IGN);
    T_OK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = (struct rlimit){50000, old.rlim_max};
    T_OK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    Status s = outfile_save(&a, tmp("out"), big, sizeof big);
    setrlimit(RLIMIT_FSIZE, &old);
    T_OK(s == ERR_IO);
    T_OK(strstr(status_text(), "out: writing failed: File too large"));
    T_TEXT(content(tmp("out")), "old");
    T_OK(n_files(check_tmp()) == 1);
    arena_close(&a);
}

/* A disk that is really full, where this user may mount one. */
TEST(a_full_file_system_is_told)
{
    Arena a = {0};
    static char big[1 << 20], command[512];
    T_STATUS_OK(outfile_folder(&a, tmp("disk")));
    snprintf(command, sizeof command, "mount -t tmpfs -o size=64k none '%s' 2>/dev/null",
             tmp("disk"));
    if (system(command) != 0)
        T_SKIP("no file system may be mounted here");
    Status s = outfile_save(&a, tmp("disk/out"), big, sizeof big);
    int left = n_files(tmp("disk"));
    snprintf(command, sizeof command, "umount '%s'", tmp("disk"));
    T_OK(system(command) == 0);
    T_OK(s == ERR_IO && strstr(status_text(), "No space left on device"));
    T_OK(left == 0);
    T_OK(rmdir(tmp("disk")) == 0);
    arena_close(&a);
}

TEST(a_killed_run_leaves_the_old_file)
{
    Arena a = {0};
    int status;
    T_STATUS_OK(outfile_save(&a, tmp("out"), "old", 3));
    pid_t child = fork();
    if (child == 0) {
        OutFile f;
        if (outfile_open(&f, &a, tmp("out")) == OK && outfile_write(&f, "newer", 5) == OK)
            raise(SIGKILL);
        _exit(1);
    }
    T_OK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    T_TEXT(content(tmp("out")), "old");
    arena_close(&a);
}

TEST(places_that_cannot_be_written_are_named)
{
    Arena a = {0};
    T_FAILS(outfile_save(&a, tmp("none/out"), "x", 1), ERR_IO,
            "none/out: cannot be written: No such");
    T_FAILS(outfile_save(&a, check_tmp(), "x", 1), ERR_IO, "it is a folder");
    T_FAILS(outfile_save(&a, "/proc/out", "x", 1), ERR_IO, "/proc/out: cannot be written");
    T_STATUS_OK(outfile_save(&a, tmp("file"), "x", 1));
    T_FAILS(outfile_save(&a, tmp("file/out"), "x", 1), ERR_IO, "file/out");
    T_FAILS(outfile_folder(&a, tmp("file")), ERR_IO, "is a file, expected a folder");
    T_FAILS(outfile_folder(&a, tmp("file/sub")), ERR_IO, "file");
    T_FAILS(outfile_folder(&a, "/proc/sub"), ERR_IO, "/proc/sub: folder cannot be made");
    arena_close(&a);
}

TEST(folders_are_made_with_those_above)
{
    Arena a = {0};
    struct stat st;
    T_STATUS_OK(outfile_folder(&a, tmp("x/y/z/")));
    T_STATUS_OK(outfile_folder(&a, tmp("x/y/z")));
    T_OK(stat(tmp("x/y/z"), &st) == 0 && S_ISDIR(st.st_mode));
    T_STATUS_OK(outfile_folder(&a, "."));
    T_STATUS_OK(outfile_save(&a, tmp("x/y/z/out"), "x", 1));
    arena_close(&a);
}

TEST(no_memory_is_an_error)
{
    Arena a = {0};
    const char *path = tmp("memory");
    arena_fail_at(1);
    Status one = outfile_save(&a, path, "x", 1), two = outfile_folder(&a, tmp("memory/x"));
    arena_fail_at(0);
    T_OK(one == ERR_MEMORY && two == ERR_MEMORY);
    T_OK(access(path, F_OK) != 0);
    arena_close(&a);
}
