/* outfolder.c - checks a target folder, fills one beside it, exchanges them. */
#include "quant/formats/outfolder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/outfile.h"
#include "quant/formats/carry.h"

/* Lies in OUT.partial from its first moment to its last: that folder is a run's own. */
#define MARK "diffquant.begun"

/* --- names --- */

/* Where the last part of path begins; *n: length without slashes at its end. */
static size_t last_part(const char *path, size_t *n)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    *n = end;
    return begin;
}

/* path without symlinks and slashes at its end. What is not there yet is taken as it is
 * spelled. */
static Status resolve(const char **out, Arena *a, const char *path)
{
    char        whole[PATH_MAX];
    size_t      end, begin = last_part(path, &end);
    int         n = (int)(end - begin);
    const char *last = path + begin, *above = ".";
    if (realpath(path, whole)) {
        *out = arena_printf(a, "%s", whole);
    } else {
        if (n == 0 || strcmp(last, "..") == 0 || strncmp(last, "../", 3) == 0)
            FAIL(ERR_USAGE, "\"%s\": expected a folder's name", path);
        if (begin && !(above = arena_text(a, path, begin)))
            FAIL(ERR_MEMORY, "out of memory: a folder's name");
        TRY(resolve(&above, a, above));
        *out = n == 1 && *last == '.'
                   ? above
                   : arena_printf(a, "%s/%.*s", strcmp(above, "/") ? above : "", n, last);
    }
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: a folder's name");
    return OK;
}

/* Is inner the folder outer, or below it? Both resolved. */
static bool is_inside(const char *inner, const char *outer)
{
    size_t n = strlen(outer);
    return strncmp(inner, outer, n) == 0 &&
           (!inner[n] || inner[n] == '/' || outer[n - 1] == '/');
}

/* --- what is in a folder --- */

typedef struct {
    int64_t files, folders;
    bool    config, weights;  // config.json, a .safetensors are among them
    bool    ours;             // so is what a run leaves to know its folder by
    char    stranger[256];    // a file that no checkpoint has; "": none
} Content;

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Calls visit for each entry; stops at the first failure. */
static Status each_entry(const char *folder, Status (*visit)(void *, int, const char *),
                         void *context)
{
    DIR *d = opendir(folder);
    if (!d)
        FAIL(ERR_IO, "%s: %s", folder, strerror(errno));
    Status s = OK;
    errno = 0;
    for (struct dirent *e; (e = readdir(d)); errno = 0)
        if (!is_dots(e->d_name))
            GUARD(visit(context, dirfd(d), e->d_name));
    if (errno)
        s = STATUS(ERR_IO, "%s: cannot be listed: %s", folder, strerror(errno));
out:
    closedir(d);
    return s;
}

static Status count_entry(void *context, int folder, const char *name)
{
    Content    *c = context;
    struct stat st;
    bool        is_folder = false;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        is_folder = S_ISDIR(st.st_mode);
    c->folders += is_folder;
    c->files += !is_folder;
    c->config |= strcmp(name, "config.json") == 0;
    c->weights |= strstr(name, ".safetensors") != NULL;
    c->ours |= strncmp(name, "diffquant.", strlen("diffquant.")) == 0;
    if (!is_folder && !carry_is_known(name))
        snprintf(c->stranger, sizeof c->stranger, "%s", name);
    return OK;
}

typedef struct {
    const char *folder, *ending;
    bool        all;  // the mark too
} Clearing;

static Status clear_entry(void *context, int folder, const char *name)
{
    const Clearing *c = context;
    size_t          n = strlen(name), n_ending = strlen(c->ending);
    if (n < n_ending || strcmp(name + n - n_ending, c->ending) != 0 ||
        (!c->all && strcmp(name, MARK) == 0))
        return OK;
    if (unlinkat(folder, name, 0) != 0 && errno != ENOENT)
        FAIL(ERR_IO, "%s/%s: cannot be removed: %s", c->folder, name, strerror(errno));
    return OK;
}

Status outfolder_clear(const OutFolder *f, const char *ending)
{
    Clearing c = {f->partial, ending, false};
    return each_entry(f->partial, clear_entry, &c);
}

/* OUT.partial goes, as far as it can. */
static void remove_partial(const OutFolder *f)
{
    Clearing c = {f->partial, "", true};
    if (each_entry(f->partial, clear_entry, &c) == OK)
        rmdir(f->partial);
}

/* --- before --- */

/* What is there may go only if it is plainly a checkpoint: config.json, weights, and no
 * file or folder that does not belong to one. */
static Status check_content(const Content *c, const char *path)
{
    char why[320];
    if (!c->config || !c->weights)
        snprintf(why, sizeof why, "is no checkpoint (it has no %s)",
                 c->config ? ".safetensors" : "config.json");
    else if (c->folders)
        snprintf(why, sizeof why, "has folders in it");
    else if (*c->stranger)
        snprintf(why, sizeof why, "has %s in it, no file of a checkpoint", c->stranger);
    else
        return OK;
    FAIL(ERR_USAGE, "%s: %s, so it is not overwritten: remove it, or choose another folder",
         path, why);
}

static Status check_old(OutFolder *f, const char *path, bool overwrite)
{
    struct stat st;
    Content     c = {0};
    if (lstat(f->target, &st) != 0)
        return OK;
    if (!S_ISDIR(st.st_mode))
        FAIL(ERR_USAGE, "%s: is a file, expected a folder or nothing", path);
    TRY(each_entry(f->target, count_entry, &c));
    if (c.files + c.folders == 0)
        return OK;
    if (!overwrite)
        FAIL(ERR_USAGE, "%s: is there already: choose another folder, or replace it with "
             "--force", path);
    TRY(check_content(&c, path));
    f->replace = true;
    return OK;
}

Status outfolder_check(OutFolder *f, Arena *a, const char *path, const char *source,
                       bool overwrite)
{
    const char *read_from;
    *f = (OutFolder){.lock = -1};
    TRY(resolve(&f->target, a, path));
    TRY(resolve(&read_from, a, source));
    f->partial = arena_printf(a, "%s.partial", f->target);
    if (!f->partial)
        FAIL(ERR_MEMORY, "out of memory: a folder's name");
    if (is_inside(f->target, read_from) || is_inside(read_from, f->target) ||
        is_inside(read_from, f->partial))
        FAIL(ERR_USAGE, "%s: is the folder of the model that is read, lies in it or holds it: "
             "choose another", path);
    return check_old(f, path, overwrite);
}

/* Locks a folder, path's own: another run may have put another one there since it was
 * opened. File systems without locks say something else: then nothing is known. */
static Status lock_folder(int *fd, const char *path)
{
    struct stat mine, now;
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        FAIL(ERR_IO, "%s: cannot be used: %s", path, strerror(errno));
    bool busy = flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!busy && fstat(*fd, &mine) == 0 && stat(path, &now) == 0 &&
        mine.st_ino == now.st_ino && mine.st_dev == now.st_dev)
        return OK;
    close(*fd);
    *fd = -1;
    FAIL(ERR_USAGE, "%s: another run is writing it", path);
}

static Status put_mark(int folder, const char *path)
{
    int fd = openat(folder, MARK, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        FAIL(ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    close(fd);
    return OK;
}

/* Whatever lies in OUT.partial may be removed: then a run must have left it. */
static Status claim(const OutFolder *f)
{
    Content c = {0};
    TRY(each_entry(f->partial, count_entry, &c));
    if (c.files + c.folders > 0 && !c.ours)
        FAIL(ERR_USAGE, "%s: holds files, and no run of this program left them: remove it, or "
             "choose another folder", f->partial);
    return put_mark(f->lock, f->partial);
}

Status outfolder_open(OutFolder *f, Arena *scratch)
{
    TRY(outfile_folder(scratch, f->partial));
    TRY(lock_folder(&f->lock, f->partial));
    Status s = claim(f);
    if (s != OK)
        close(f->lock);
    f->open = s == OK;
    return s;
}

/* --- after --- */

static Status sync_above(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return OK;  // a folder that may be written but not read
    bool failed = fsync(fd) != 0 && errno != EINVAL && errno != EROFS;
    int  reason = errno;
    close(fd);
    if (failed)
        FAIL(ERR_IO, "%s: syncing its folder failed: %s", path, strerror(reason));
    return OK;
}

/* Both names change in one step where the system can; else OUT is away for a moment, and
 * a run that is killed right then leaves it as OUT.partial.old. */
static Status exchange(const OutFolder *f)
{
    char aside[PATH_MAX];
    if (renameat2(AT_FDCWD, f->partial, AT_FDCWD, f->target, RENAME_EXCHANGE) == 0)
        return OK;
    if (snprintf(aside, sizeof aside, "%s.old", f->partial) >= (int)sizeof aside)
        FAIL(ERR_IO, "%s: path is too long", f->target);
    if (rename(f->target, aside) != 0)
        FAIL(ERR_IO, "%s: cannot be replaced: %s", f->target, strerror(errno));
    if (rename(f->partial, f->target) != 0) {
        Status s = STATUS(ERR_IO, "%s: renaming onto it failed: %s", f->target,
                          strerror(errno));
        if (rename(aside, f->target) != 0)
            s = STATUS(ERR_IO, "%s: cannot be replaced; it is now %s", f->target, aside);
        return s;
    }
    if (rename(aside, f->partial) != 0)
        FAIL(ERR_IO, "%s: was replaced, the old one is %s", f->target, aside);
    return OK;
}

/* The old OUT is locked and marked before it gets the name OUT.partial: another run must not
 * take it for its own, nor, if this one is killed then, for a stranger's. */
static Status replace(const OutFolder *f)
{
    int old;
    TRY(lock_folder(&old, f->target));
    bool   marked = put_mark(old, f->target) == OK;
    Status s = exchange(f);
    /* OUT is whole: what cannot be removed of the old one is no failure. */
    if (s == OK && marked)
        remove_partial(f);
    else if (s != OK)
        unlinkat(old, MARK, 0);
    close(old);
    return s;
}

Status outfolder_commit(OutFolder *f)
{
    CHECK(f->open);
    if (fsync(f->lock) != 0 && errno != EINVAL && errno != EROFS)
        FAIL(ERR_IO, "%s: writing failed: %s", f->partial, strerror(errno));
    if (f->replace)
        TRY(replace(f));
    else if (rename(f->partial, f->target) != 0)
        FAIL(ERR_IO, "%s: renaming onto it failed: %s", f->target, strerror(errno));
    unlinkat(f->lock, MARK, 0);   // only now: a run killed before knows OUT.partial for its own
    close(f->lock);
    f->open = false;
    return sync_above(f->target);
}

void outfolder_close(OutFolder *f, bool keep)
{
    if (!f->open)
        return;
    if (!keep)
        remove_partial(f);
    close(f->lock);
    f->open = false;
}
