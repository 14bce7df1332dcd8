/* test_outfolder.c - folders that appear whole, in the place of others or not. */
#include "quant/formats/outfolder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/quant/ref_source.h"

static bool exit_once_exchanged;

/* In the place of the system library's. */
int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    long result = syscall(SYS_renameat2, from, old, to, new, flags);
    if (exit_once_exchanged)
        _exit(result == 0 ? 0 : 77);
    return (int)result;
}

static bool there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static const char *in(const char *folder, const char *name)
{
    return ref_path("%s/%s", folder, name);
}

/* A model folder that is read, and one that may be overwritten. */
static void make_folders(void)
{
    mkdir(ref_path("src"), 0777);
    ref_write_text(ref_path("src/config.json"), "{}");
    mkdir(ref_path("old"), 0777);
    ref_write_text(ref_path("old/config.json"), "{}");
    ref_write_text(ref_path("old/old.safetensors"), "old");
}

static Status write_one(Arena *a, const char *path, bool overwrite)
{
    OutFolder f;
    TRY(outfolder_check(&f, a, path, ref_path("src"), overwrite));
    Status s = outfolder_open(&f, a);
    if (s == OK) {
        char file[700];
        snprintf(file, sizeof file, "%s/config.json", f.partial);
        ref_write_text(file, "{\"a\": 1}");
        s = outfolder_commit(&f);
    }
    outfolder_close(&f, false);
    return s;
}

TEST(a_folder_appears_with_those_above_it)
{
    Arena a = {0};
    make_folders();
    T_STATUS_OK(write_one(&a, ref_path("x/y/out/"), false));
    T_OK(there(ref_path("x/y/out/config.json")) && !there(ref_path("x/y/out.partial")));
    mkdir(ref_path("empty"), 0777);
    T_STATUS_OK(write_one(&a, ref_path("empty"), false));
    T_OK(there(ref_path("empty/config.json")));
    T_OK(chdir(ref_path("x")) == 0);
    T_STATUS_OK(write_one(&a, "here", false));
    T_STATUS_OK(write_one(&a, "./new/./here", false));
    T_OK(there(ref_path("x/here/config.json")) && there(ref_path("x/new/here/config.json")));
    T_OK(chdir("/") == 0);
    arena_close(&a);
}

TEST(an_old_checkpoint_goes_when_it_may)
{
    Arena a = {0};
    make_folders();
    T_FAILS(write_one(&a, ref_path("old"), false), ERR_USAGE, "old: is there already");
    T_OK(there(ref_path("old/old.safetensors")));
    T_STATUS_OK(write_one(&a, ref_path("old"), true));
    T_OK(there(ref_path("old/config.json")) && !there(ref_path("old/old.safetensors")));
    T_OK(!there(ref_path("old.partial")));
    /* through a symlink: what it points to is exchanged, it stays */
    make_folders();
    T_OK(symlink(ref_path("old"), ref_path("link")) == 0);
    T_STATUS_OK(write_one(&a, ref_path("link"), true));
    struct stat st;
    T_OK(lstat(ref_path("link"), &st) == 0 && S_ISLNK(st.st_mode));
    T_OK(!there(ref_path("old/old.safetensors")) && there(ref_path("old/config.json")));
    unlink(ref_path("link"));
    arena_close(&a);
}

/* In a child that ends when OUT and OUT.partial have changed names, and does nothing more. */
TEST(a_run_that_ends_at_the_exchange_leaves_what_may_be_removed)
{
    Arena a = {0};
    int   ended;
    make_folders();
    pid_t child = fork();
    if (child == 0) {
        exit_once_exchanged = true;
        _exit(write_one(&a, ref_path("old"), true) == OK ? 1 : 2);
    }
    T_OK(child > 0 && waitpid(child, &ended, 0) == child && WIFEXITED(ended));
    if (WEXITSTATUS(ended) == 77)
        return;  // a file system that cannot: the old one is put aside
    T_OK(WEXITSTATUS(ended) == 0);
    T_OK(there(ref_path("old.partial/old.safetensors")) && there(ref_path("old/config.json")));
    ref_write_text(ref_path("old/new.safetensors"), "new");
    T_STATUS_OK(write_one(&a, ref_path("old"), true));
    T_OK(!there(ref_path("old.partial")) && !there(ref_path("old/diffquant.begun")));
    arena_close(&a);
}

TEST(what_is_no_checkpoint_is_never_overwritten)
{
    Arena a = {0};
    make_folders();
    mkdir(ref_path("home"), 0777);
    ref_write_text(ref_path("home/thesis.txt"), "years");
    T_FAILS(write_one(&a, ref_path("home"), true), ERR_USAGE, "home: is no checkpoint");
    mkdir(ref_path("old/sub"), 0777);
    T_FAILS(write_one(&a, ref_path("old"), true), ERR_USAGE, "old: has folders in it");
    rmdir(ref_path("old/sub"));
    /* config.json alone makes no checkpoint, and one may have a user's file in it */
    ref_write_text(ref_path("old/thesis.txt"), "years");
    T_FAILS(write_one(&a, ref_path("old"), true), ERR_USAGE, "old: has thesis.txt in it");
    T_OK(there(ref_path("old/thesis.txt")));
    unlink(ref_path("old/thesis.txt"));
    unlink(ref_path("old/old.safetensors"));
    T_FAILS(write_one(&a, ref_path("old"), true), ERR_USAGE, "it has no .safetensors");
    T_FAILS(write_one(&a, ref_path("home/thesis.txt"), true), ERR_USAGE, "is a file");
    T_FAILS(write_one(&a, ref_path("home/thesis.txt/x"), true), ERR_IO, "thesis.txt");
    T_FAILS(write_one(&a, ref_path("none/.."), true), ERR_USAGE, "expected a folder's name");
    T_FAILS(write_one(&a, "", true), ERR_USAGE, "expected a folder's name");
    T_OK(there(ref_path("home/thesis.txt")) && !there(ref_path("home.partial")));
    arena_close(&a);
}

/* OUT.partial is emptied: only what a run left there may go. */
TEST(a_folder_called_partial_is_not_taken)
{
    Arena a = {0};
    make_folders();
    mkdir(ref_path("mine.partial"), 0777);
    ref_write_text(ref_path("mine.partial/model.safetensors"), "half a download");
    for (int overwrite = 0; overwrite < 2; overwrite++)
        T_FAILS(write_one(&a, ref_path("mine"), overwrite), ERR_USAGE,
                "mine.partial: holds files, and no run of this program left them");
    T_OK(there(ref_path("mine.partial/model.safetensors")) && !there(ref_path("mine")));
    unlink(ref_path("mine.partial/model.safetensors"));
    T_STATUS_OK(write_one(&a, ref_path("mine"), false));
    T_OK(there(ref_path("mine/config.json")) && !there(ref_path("mine/diffquant.begun")));
    arena_close(&a);
}

/* What a run killed at its very begin leaves is known again; files beside it go. */
TEST(what_a_run_left_is_taken_up)
{
    Arena     a = {0};
    OutFolder f;
    make_folders();
    T_STATUS_OK(outfolder_check(&f, &a, ref_path("again"), ref_path("src"), false));
    T_STATUS_OK(outfolder_open(&f, &a));
    ref_write_text(ref_path("again.partial/model.safetensors"), "half");
    close(f.lock);  // as a killed run does
    T_STATUS_OK(outfolder_open(&f, &a));
    T_STATUS_OK(outfolder_clear(&f, ""));
    T_OK(!there(ref_path("again.partial/model.safetensors")));
    close(f.lock);
    T_STATUS_OK(outfolder_open(&f, &a));  // cleared is not forgotten
    T_STATUS_OK(outfolder_commit(&f));
    T_OK(there(ref_path("again")) && !there(ref_path("again/diffquant.begun")));
    arena_close(&a);
}

/* The mark of a run stays until its folder has the name: here another has taken that. */
TEST(a_run_that_ends_at_the_last_step_is_taken_up)
{
    Arena     a = {0};
    OutFolder f;
    make_folders();
    T_STATUS_OK(outfolder_check(&f, &a, ref_path("late"), ref_path("src"), false));
    T_STATUS_OK(outfolder_open(&f, &a));
    ref_write_text(ref_path("late.partial/model.safetensors"), "whole");
    T_OK(mkdir(ref_path("late"), 0777) == 0);
    ref_write_text(ref_path("late/other"), "other");
    T_FAILS(outfolder_commit(&f), ERR_IO, "renaming");
    close(f.lock);
    T_STATUS_OK(outfolder_open(&f, &a));
    T_OK(there(ref_path("late.partial/model.safetensors")));
    outfolder_close(&f, false);
    arena_close(&a);
}

TEST(the_source_is_safe)
{
    Arena a = {0};
    make_folders();
    mkdir(ref_path("linked"), 0777);
    T_OK(symlink(ref_path("src"), ref_path("alias")) == 0);
    T_OK(symlink(ref_path("src"), ref_path("linked/way")) == 0);
    const char *const PATHS[] = {
        ref_path("src"),     ref_path("src/"),      ref_path("x/../src"), ref_path("alias"),
        ref_path("src/out"), ref_path("alias/out"), ref_path("linked/way/a/b"), check_tmp(),
    };
    mkdir(ref_path("x"), 0777);
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++)
        T_FAILS(write_one(&a, PATHS[i], true), ERR_USAGE, "the model that is read");
    T_OK(!there(in("src", "out")) && !there(in("src", "a")));
    /* a source called OUT.partial */
    OutFolder f;
    mkdir(ref_path("m.partial"), 0777);
    T_FAILS(outfolder_check(&f, &a, ref_path("m"), ref_path("m.partial"), true), ERR_USAGE,
            "the model that is read");
    /* only the name begins alike */
    T_STATUS_OK(write_one(&a, ref_path("src2"), false));
    arena_close(&a);
}

TEST(one_run_at_a_time)
{
    Arena     a = {0};
    OutFolder one, two;
    make_folders();
    T_STATUS_OK(outfolder_check(&one, &a, ref_path("busy"), ref_path("src"), false));
    T_STATUS_OK(outfolder_check(&two, &a, ref_path("busy"), ref_path("src"), false));
    T_STATUS_OK(outfolder_open(&one, &a));
    T_FAILS(outfolder_open(&two, &a), ERR_USAGE, "busy.partial: another run is writing it");
    outfolder_close(&two, false);
    T_OK(there(ref_path("busy.partial")));
    outfolder_close(&one, true);
    T_OK(there(ref_path("busy.partial")));
    T_STATUS_OK(outfolder_open(&two, &a));
    outfolder_close(&two, false);
    outfolder_close(&two, false);  // twice is fine
    T_OK(!there(ref_path("busy.partial")) && !there(ref_path("busy")));
    arena_close(&a);
}
