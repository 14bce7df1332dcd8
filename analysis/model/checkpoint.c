/* checkpoint.c - opens all files of a folder and joins their tables. */
#include "analysis/model/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/json.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

static Status join_path(char **out, Arena *a, const char *folder, const char *file)
{
    *out = arena_printf(a, "%s/%s", folder, file);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    return OK;
}

/* --- the index --- */

static Status check_shard_name(const Json *v, const char *path)
{
    if (v->kind != JSON_TEXT)
        FAIL(ERR_FORMAT, "%s: weight_map %s is %s, expected a file name", path, v->key,
             json_kind_name(v->kind));
    if (!v->text[0] || v->text[0] == '.' || strpbrk(v->text, "/\\"))
        FAIL(ERR_FORMAT, "%s: weight_map %s is \"%.80s\", expected a file name without a path",
             path, v->key, v->text);
    return OK;
}

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* The different file names of the map, sorted. */
static Status list_shards(const char ***names, int64_t *n, Arena *a, const Json *weight_map,
                          const char *path)
{
    const char **all;
    ARENA_NEW(all, a, weight_map->n);
    for (int64_t i = 0; i < weight_map->n; i++) {
        TRY(check_shard_name(&weight_map->at[i], path));
        all[i] = weight_map->at[i].text;
    }
    qsort(all, (size_t)weight_map->n, sizeof *all, by_text);
    *n = 0;
    for (int64_t i = 0; i < weight_map->n; i++)
        if (i == 0 || strcmp(all[i], all[i - 1]) != 0)
            all[(*n)++] = all[i];
    *names = all;
    return OK;
}

static Status read_index(const Json **weight_map, Arena *a, const char *path)
{
    const Json *root;
    TRY(json_read(&root, a, path));
    *weight_map = json_member(root, "weight_map");
    if (!*weight_map || (*weight_map)->kind != JSON_OBJECT || (*weight_map)->n == 0)
        FAIL(ERR_FORMAT, "%s: weight_map is missing, empty or not an object", path);
    return OK;
}

static Status check_index(const Checkpoint *c, const Json *weight_map, const char *path)
{
    for (int64_t i = 0; i < weight_map->n; i++) {
        const Json        *v = &weight_map->at[i];
        const ModelTensor *t = checkpoint_find(c, v->key);
        if (!t || strcmp(t->file, v->text) != 0)
            FAIL(ERR_FORMAT, "%s: tensor %s is not in %s, where the index puts it", path,
                 v->key, v->text);
    }
    return OK;
}

/* --- the files --- */

static int by_name(const void *x, const void *y)
{
    return strcmp(((const ModelTensor *)x)->name, ((const ModelTensor *)y)->name);
}

static Status join_tensors(Checkpoint *c, Arena *a, const char *folder)
{
    for (int64_t i = 0; i < c->n_files; i++)
        c->n += c->files[i].n;
    ARENA_NEW(c->tensors, a, c->n);
    ModelTensor *next = c->tensors;
    for (int64_t i = 0; i < c->n_files; i++) {
        if (c->files[i].n)
            memcpy(next, c->files[i].tensors, (size_t)c->files[i].n * sizeof *next);
        next += c->files[i].n;
    }
    qsort(c->tensors, (size_t)c->n, sizeof *c->tensors, by_name);
    for (int64_t i = 1; i < c->n; i++)
        if (strcmp(c->tensors[i].name, c->tensors[i - 1].name) == 0)
            FAIL(ERR_FORMAT, "%s: tensor %s is in %s and in %s", folder, c->tensors[i].name,
                 c->tensors[i - 1].file, c->tensors[i].file);
    return OK;
}

static Status open_files(Checkpoint *c, Arena *a, const char *folder, const char *const *names,
                         int64_t n)
{
    ARENA_NEW(c->files, a, n);
    for (; c->n_files < n; c->n_files++) {
        char *path;
        TRY(join_path(&path, a, folder, names[c->n_files]));
        TRY(safetensors_open(&c->files[c->n_files], a, path));
    }
    return join_tensors(c, a, folder);
}

static Status open_all(Checkpoint *c, Arena *a, const char *folder)
{
    static const char *const ONE[] = {SINGLE};
    char                    *index, *single;
    TRY(join_path(&index, a, folder, INDEX));
    TRY(join_path(&single, a, folder, SINGLE));
    if (access(index, F_OK) == 0) {
        const Json  *weight_map;
        const char **names = NULL;
        int64_t      n = 0;
        TRY(read_index(&weight_map, a, index));
        TRY(list_shards(&names, &n, a, weight_map, index));
        TRY(open_files(c, a, folder, names, n));
        return check_index(c, weight_map, index);
    }
    if (access(single, F_OK) != 0)
        FAIL(ERR_IO, "%s: neither " SINGLE " nor " INDEX " is there", folder);
    return open_files(c, a, folder, ONE, 1);
}

Status checkpoint_open(Checkpoint *c, Arena *a, const char *folder)
{
    *c = (Checkpoint){0};
    Status s = open_all(c, a, folder);
    if (s != OK)
        checkpoint_close(c);
    return s;
}

void checkpoint_close(Checkpoint *c)
{
    for (int64_t i = 0; i < c->n_files; i++)
        safetensors_close(&c->files[i]);
    if (c->gguf)
        gguf_file_close(c->gguf);
    *c = (Checkpoint){0};
}

const ModelTensor *checkpoint_find(const Checkpoint *c, const char *name)
{
    ModelTensor key = {.name = name};
    return c->n ? bsearch(&key, c->tensors, (size_t)c->n, sizeof key, by_name) : NULL;
}
