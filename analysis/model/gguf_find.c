/* gguf_find.c - which GGUF file a path on the command line means. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/model/gguf_file.h"

static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcasecmp(name + n - 5, ".gguf") == 0;
}

/* The folder's only .gguf; NULL where there is none. */
static Status scan(const char **out, Arena *a, DIR *dir, const char *folder)
{
    int n = 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        if (!is_name(e->d_name) || n++)
            continue;
        *out = arena_printf(a, "%s/%s", folder, e->d_name);
        if (!*out)
            FAIL(ERR_MEMORY, "out of memory: a file name");
    }
    if (n > 1)
        FAIL(ERR_FORMAT, "%s: no config.json, but %d GGUF files: name one of them", folder, n);
    return OK;
}

static Status find_in_folder(const char **out, Arena *a, const char *folder)
{
    const char *config = arena_printf(a, "%s/config.json", folder);
    if (!config)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    if (access(config, F_OK) == 0)
        return OK;
    DIR *dir = opendir(folder);
    if (!dir)
        FAIL(ERR_IO, "%s: %s", folder, strerror(errno));
    Status s = scan(out, a, dir, folder);
    closedir(dir);
    return s;
}

Status gguf_file_find(const char **out, Arena *a, const char *path)
{
    struct stat st;
    *out = NULL;
    if (stat(path, &st) != 0) {
        *out = is_name(path) ? path : NULL;  // what opens it says why it cannot
        return OK;
    }
    if (S_ISDIR(st.st_mode))
        return find_in_folder(out, a, path);
    *out = path;  // gguf_file_open says what is wrong with it
    return OK;
}
