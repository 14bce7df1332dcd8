/* shards.c - cuts a list of tensors into files. */
#include "quant/formats/shards.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/textbuf.h"
#include "kernels/outfile.h"

/* --- order --- */

/* Numbers inside names count as numbers: layer 10 comes after layer 9. */
static int compare_names(const char *x, const char *y)
{
    while (*x && *y) {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            char              *x_end, *y_end;
            unsigned long long a = strtoull(x, &x_end, 10), b = strtoull(y, &y_end, 10);
            if (a != b)
                return a < b ? -1 : 1;
            x = x_end;
            y = y_end;
            continue;
        }
        if (*x != *y)
            break;
        x++;
        y++;
    }
    return (unsigned char)*x - (unsigned char)*y;
}

static int by_layer(const void *x, const void *y)
{
    const OutTensor *a = x, *b = y;
    int              order = compare_names(a->name, b->name);
    return order ? order : strcmp(a->name, b->name);
}

static int by_name(const void *x, const void *y)
{
    return strcmp((*(OutTensor *const *)x)->name, (*(OutTensor *const *)y)->name);
}

/* --- cutting --- */

enum { HEADER_ROOM = 64 };  // of a header without tensors

/* Tensors from at[0] on that fit into one file: at least one. */
static int64_t fitting(const OutTensor *at, int64_t n, size_t limit)
{
    size_t  used = HEADER_ROOM;
    int64_t i = 0;
    for (; i < n; i++) {
        used += tensorfile_room(&at[i]);
        if (i > 0 && used > limit)
            break;
    }
    return i;
}

static const char *file_path(Arena *a, const char *folder, int64_t i, int64_t n_files)
{
    if (n_files == 1)
        return arena_printf(a, "%s/model.safetensors", folder);
    return arena_printf(a, "%s/model-%05lld-of-%05lld.safetensors", folder, (long long)(i + 1),
                        (long long)n_files);
}

static Status layout_files(Shards *s, Arena *a, const char *folder, size_t limit)
{
    int64_t first = 0, n_files = 0;
    for (; first < s->n; n_files++)
        first += fitting(s->at + first, s->n - first, limit);
    ARENA_NEW(s->files, a, n_files);
    for (first = 0; s->n_files < n_files; s->n_files++) {
        TensorFile *f = &s->files[s->n_files];
        int64_t     n = fitting(s->at + first, s->n - first, limit);
        const char *path = file_path(a, folder, s->n_files, n_files);
        if (!path)
            FAIL(ERR_MEMORY, "out of memory: a file name");
        TRY(tensorfile_layout(f, a, path, s->at + first, n));
        s->n_data += f->n_data;
        first += n;
    }
    return OK;
}

Status shards_layout(Shards *s, Arena *a, const char *folder, OutTensor *at, int64_t n,
                     size_t limit)
{
    CHECK(n > 0);
    *s = (Shards){.n = n, .at = at};
    qsort(at, (size_t)n, sizeof *at, by_layer);
    TRY(layout_files(s, a, folder, limit));
    ARENA_NEW(s->by_name, a, n);
    for (int64_t i = 0; i < n; i++)
        s->by_name[i] = &at[i];
    qsort(s->by_name, (size_t)n, sizeof *s->by_name, by_name);
    return OK;
}

/* --- writing --- */

Status shards_create(Shards *s)
{
    for (int64_t i = 0; i < s->n_files; i++)
        TRY(tensorfile_create(&s->files[i]));
    return OK;
}

Status shards_reopen(Shards *s)
{
    for (int64_t i = 0; i < s->n_files; i++)
        TRY(tensorfile_reopen(&s->files[i]));
    return OK;
}

OutTensor *shards_find(const Shards *s, const char *name)
{
    OutTensor        key = {.name = name}, *wanted = &key;
    OutTensor *const *at = bsearch(&wanted, s->by_name, (size_t)s->n, sizeof *s->by_name,
                                   by_name);
    return at ? *at : NULL;
}

static TensorFile *file_of(const Shards *s, const OutTensor *t)
{
    int64_t i = 0;
    while (t >= s->files[i].at + s->files[i].n)
        i++;
    return &s->files[i];
}

Status shards_put(Shards *s, OutTensor *t, size_t offset, const void *data, size_t n)
{
    return tensorfile_put(file_of(s, t), t, offset, data, n);
}

Status shards_sync(Shards *s)
{
    for (int64_t i = 0; i < s->n_files; i++)
        TRY(tensorfile_sync(&s->files[i]));
    return OK;
}

const OutTensor *shards_missing(const Shards *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (!tensorfile_is_whole(&s->at[i]))
            return &s->at[i];
    return NULL;
}

Status shards_write_index(const Shards *s, Arena *scratch, const char *folder)
{
    TextBuf b;
    if (s->n_files == 1)
        return OK;
    textbuf_init(&b, scratch);
    textbuf_printf(&b, "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n"
                   "  \"weight_map\": {", s->n_data);
    for (int64_t i = 0; i < s->n; i++) {
        textbuf_add(&b, i ? ",\n    " : "\n    ");
        textbuf_json(&b, s->by_name[i]->name);
        textbuf_printf(&b, ": \"%s\"", strrchr(file_of(s, s->by_name[i])->path, '/') + 1);
    }
    textbuf_add(&b, "\n  }\n}\n");
    TRY(textbuf_status(&b));
    const char *path = arena_printf(scratch, "%s/model.safetensors.index.json", folder);
    if (!path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    return outfile_save(scratch, path, b.at, b.n);
}

size_t shards_bytes(const Shards *s)
{
    size_t n = 0;
    for (int64_t i = 0; i < s->n_files; i++)
        n += s->files[i].n_data;
    return n;
}

void shards_close(Shards *s)
{
    for (int64_t i = 0; i < s->n_files; i++)
        tensorfile_close(&s->files[i]);
    *s = (Shards){0};
}
