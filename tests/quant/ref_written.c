/* ref_written.c - one run of the GGUF writer. */
#include "tests/quant/ref_written.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"

const char *written_path(const char *name)
{
    static char paths[4][512];
    static int  turn;
    char       *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s.gguf", check_tmp(), name);
    return path;
}

int written_files(const char *name)
{
    int  n = 0;
    DIR *d = opendir(check_tmp());
    for (struct dirent *e; d && (e = readdir(d));)
        n += strncmp(e->d_name, name, strlen(name)) == 0;
    if (d)
        closedir(d);
    return n;
}

Status written_write(Written *r, const char *folder, GgufType type, const char *path,
                     const double **importance)
{
    Layers l;
    Status s = layers_open(&l, &r->arena, folder);
    if (s != OK)
        return s;
    r->o = (GgufOptions){.path = path, .type = type, .source = &l, .overwrite = true,
                         .importance = importance};
    r->o.rows = arena_alloc(&r->arena, l.info.n_tensors, sizeof *r->o.rows);
    s = r->o.rows ? gguf_write(&r->arena, &r->o) : ERR_MEMORY;
    layers_close(&l);
    return s;
}

const char *written_run(Written *r, const char *folder, GgufType type, const char *name)
{
    memset(r, 0, sizeof *r);
    const char *path = written_path(name);
    if (!folder || written_write(r, folder, type, path, NULL) != OK)
        return folder ? status_text() : "no folder";
    const char *wrong = ref_gguf_open(&r->file, path);
    return wrong ? wrong : r->o.bytes == r->file.n ? NULL : "bytes";
}

void written_close(Written *r)
{
    ref_gguf_close(&r->file);
    arena_close(&r->arena);
}
