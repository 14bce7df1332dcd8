/* test_grid_folder.c - OUT of eval and compare: what stands in the way is told first, two runs
 * do not meet there, and what was changed meanwhile is not taken up. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/reports/ref_program.h"

/* eval of the pair over text.txt into OUT. */
static const char *eval(const char *more)
{
    static char text[1024];
    if (!exists("text.txt"))
        write_text("text.txt", "To list the files of a folder, use the command ls. The option "
                   "-l gives more of each.\n");
    snprintf(text, sizeof text, "eval -q %s --text text.txt --context 16 --logit-bits 16 %s",
             check_path("pair/diff"), more);
    return text;
}

TEST(what_stands_in_the_way_is_told_first)
{
    T_OK(system_in_tmp("mkdir -p way/index.html taken/study.h5 && mkdir -p c/checkpoints && "
                       "touch c/checkpoints/diff-w4-gptq"));
    T_OK(fails(run(eval("-o way")), 1, "way/index.html", "is a folder"));
    T_OK(fails(run(eval("-o taken")), 1, "taken/study.h5", "is a folder"));
    T_OK(!exists("way/cells/diff-fp-16.cell") && !exists("taken/cells/diff-fp-16.cell"));
    T_OK(fails(run(eval("--weights w4:gptq -o c")), 1, "c/checkpoints/diff-w4-gptq",
               "is a file, expected a checkpoint's folder"));
    T_OK(!exists("c/cells/diff-fp-16.cell"));
}

/* Another run would remove the cells of the first. */
TEST(one_run_at_a_time)
{
    char path[300];
    T_OK(run(eval("-o busy"))->code == 0);
    snprintf(path, sizeof path, "%s/busy/cells/lock", check_tmp());
    int fd = open(path, O_RDWR | O_CLOEXEC);
    T_OK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    T_OK(fails(run(eval("--bos none -o busy")), 1, "busy", "another run"));
    T_OK(exists("busy/cells/diff-fp-16.cell"));
    close(fd);
    T_OK(run(eval("--resume -o busy"))->code == 0);
}

/* Its name, size and time are as they were. */
TEST(a_text_of_other_bytes_is_another)
{
    T_OK(run(eval("-o bytes"))->code == 0);
    T_OK(run(eval("--resume -o bytes"))->code == 0);
    T_OK(system_in_tmp("cp -p text.txt was.txt && sed -i 's/list/sort/' text.txt && "
                       "touch -r was.txt text.txt"));
    T_OK(fails(run(eval("--resume -o bytes")), 2, "--text text.txt, bytes", "now it is"));
    T_OK(system_in_tmp("cp was.txt text.txt"));   // of another time
    T_OK(run(eval("--resume -o bytes"))->code == 0);
}

static bool flip(const char *name, long at)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    FILE *f = fopen(path, "r+b");
    int   c = f && fseek(f, at, SEEK_SET) == 0 ? getc(f) : EOF;
    bool  done = c != EOF && fseek(f, at, SEEK_SET) == 0 && putc(c ^ 1, f) != EOF;
    if (f)
        done = fclose(f) == 0 && done;
    return done;
}

static long size_of(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    FILE *f = fopen(path, "rb");
    long  n = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
    if (f)
        fclose(f);
    return n;
}

/* Any bit of what was kept; without its hash it is none that was kept whole. */
TEST(kept_figures_are_whole_or_none)
{
    static const char *const FILES[] = {"flip/cells/diff-fp-16.cell", "flip/cells/diff.h5"};
    T_OK(run(eval("-o flip"))->code == 0);
    T_OK(system_in_tmp("cp flip/study.h5 first.h5"));
    for (int i = 0; i < 2; i++)
        for (int k = 1; k < 4; k++) {
            long n = size_of(FILES[i]), at = i ? n * k / 4 : n - 8 * k;
            T_OK(n > 0 && flip(FILES[i], at));
            T_OK(fails(run(eval("--resume -o flip")), 1, FILES[i], "not whole: remove it"));
            T_OK(flip(FILES[i], at));
        }
    T_OK(run(eval("--resume -o flip"))->code == 0 && same("first.h5", "flip/study.h5"));
    T_OK(system_in_tmp("rm flip/cells/diff.h5.sum") && flip(FILES[1], size_of(FILES[1]) / 2));
    T_OK(run(eval("--resume -o flip"))->code == 0 && same("first.h5", "flip/study.h5"));
}
