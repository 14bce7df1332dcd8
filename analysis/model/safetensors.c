/* safetensors.c - header, then tensor by tensor, then the data's outline. */
#include "analysis/model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/json.h"
#include "kernels/size.h"

/* Place of a tensor in the data. */
typedef struct {
    int64_t     begin, end;
    const char *name;
} Extent;

/* What is being parsed, for messages and sums. */
typedef struct {
    const char          *path;
    const unsigned char *data;    // byte 8 + N of the file
    size_t               n_data;  // bytes from there to its end
    Extent              *extents;
} Parse;

/* --- header --- */

static Status read_header_size(size_t *size, const FileMap *map, const char *path)
{
    uint64_t n = 0;
    if (map->size < 8)
        FAIL(ERR_FORMAT, "%s: %zu bytes, expected at least 8", path, map->size);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | map->data[i];
    if (n > SAFETENSORS_MAX_HEADER)
        FAIL(ERR_FORMAT, "%s: header of %llu bytes, expected at most %d", path,
             (unsigned long long)n, SAFETENSORS_MAX_HEADER);
    if (n > map->size - 8)
        FAIL(ERR_FORMAT, "%s: header of %llu bytes, but only %zu follow its size", path,
             (unsigned long long)n, map->size - 8);
    *size = (size_t)n;
    return OK;
}

static Status check_metadata(const Json *v, const char *path)
{
    if (v->kind == JSON_NULL)
        return OK;
    if (v->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: __metadata__ is %s, expected an object", path,
             json_kind_name(v->kind));
    for (int64_t i = 0; i < v->n; i++)
        if (v->at[i].kind != JSON_TEXT)
            FAIL(ERR_FORMAT, "%s: __metadata__ \"%.80s\" is %s, expected a text", path,
                 v->at[i].key, json_kind_name(v->at[i].kind));
    return OK;
}

/* --- one tensor --- */

static const Json *list_member(const Json *v, const char *name)
{
    const Json *list = json_member(v, name);
    return list && list->kind == JSON_LIST ? list : NULL;
}

static Status read_dtype(Dtype *out, const Parse *p, const Json *v)
{
    const Json *dtype = json_member(v, "dtype");
    if (!dtype || dtype->kind != JSON_TEXT)
        FAIL(ERR_FORMAT, "%s: tensor %s: dtype is %s, expected a text", p->path, v->key,
             dtype ? json_kind_name(dtype->kind) : "missing");
    if (dtype_parse(out, dtype->text) != OK)
        FAIL(ERR_UNSUPPORTED, "%s: tensor %s: %s", p->path, v->key, status_text());
    return OK;
}

/* Shape and, in *bytes, what it takes. */
static Status read_shape(Tensor *t, size_t *bytes, const Parse *p, const Json *v)
{
    const Json *shape = list_member(v, "shape");
    if (!shape)
        FAIL(ERR_FORMAT, "%s: tensor %s: shape is missing or not a list", p->path, v->key);
    if (shape->n > TENSOR_MAX_DIMS)
        FAIL(ERR_UNSUPPORTED, "%s: tensor %s has %lld dims, expected at most %d", p->path,
             v->key, (long long)shape->n, TENSOR_MAX_DIMS);
    t->n_dims = (int)shape->n;
    *bytes = 1;
    for (int i = 0; i < t->n_dims; i++) {
        const Json *dim = &shape->at[i];
        if (dim->kind != JSON_NUMBER || !dim->whole || dim->integer < 0)
            FAIL(ERR_FORMAT, "%s: tensor %s: shape[%d] is not a whole number from 0 to 2^63-1",
                 p->path, v->key, i);
        t->shape[i] = dim->integer;
        if (!size_mul(*bytes, (size_t)dim->integer, bytes) || *bytes > INT64_MAX)
            FAIL(ERR_FORMAT, "%s: tensor %s: the product of its shape overflows", p->path,
                 v->key);
    }
    if (!size_mul(*bytes, dtype_size(t->dtype), bytes))
        FAIL(ERR_FORMAT, "%s: tensor %s: its size in bytes overflows", p->path, v->key);
    return OK;
}

static Status read_extent(Extent *e, const Parse *p, const Json *v)
{
    const Json *offsets = list_member(v, "data_offsets");
    if (!offsets || offsets->n != 2 || !offsets->at[0].whole || !offsets->at[1].whole ||
        offsets->at[0].integer < 0)
        FAIL(ERR_FORMAT, "%s: tensor %s: data_offsets is missing or not two whole numbers",
             p->path, v->key);
    *e = (Extent){offsets->at[0].integer, offsets->at[1].integer, v->key};
    if (e->end < e->begin)
        FAIL(ERR_FORMAT, "%s: tensor %s ends at byte %lld, before it begins at %lld", p->path,
             v->key, (long long)e->end, (long long)e->begin);
    return OK;
}

static Status read_tensor(ModelTensor *t, Extent *e, const Parse *p, const Json *v)
{
    size_t bytes = 0;
    if (v->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: tensor %s is %s, expected an object", p->path, v->key,
             json_kind_name(v->kind));
    t->name = v->key;
    TRY(read_dtype(&t->view.dtype, p, v));
    TRY(read_shape(&t->view, &bytes, p, v));
    TRY(read_extent(e, p, v));
    if ((size_t)(e->end - e->begin) != bytes)
        FAIL(ERR_FORMAT, "%s: tensor %s has %lld bytes, expected %zu from its shape", p->path,
             v->key, (long long)(e->end - e->begin), bytes);
    /* May point past the mapping: check_outline then refuses the file. */
    t->view.data = (void *)((uintptr_t)p->data + (uintptr_t)e->begin);
    return OK;
}

/* --- all of them --- */

static int by_place(const void *x, const void *y)
{
    const Extent *a = x, *b = y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

/* The tensors, in order of place, fill the data to its last byte. */
static Status check_outline(const Parse *p, int64_t n)
{
    int64_t end = 0;
    qsort(p->extents, (size_t)n, sizeof *p->extents, by_place);
    for (int64_t i = 0; i < n; i++) {
        const Extent *e = &p->extents[i];
        if (e->begin != end)
            FAIL(ERR_FORMAT, "%s: tensor %s begins at byte %lld of the data, expected %lld: %s",
                 p->path, e->name, (long long)e->begin, (long long)end,
                 e->begin > end ? "a hole" : "an overlap");
        end = e->end;
    }
    if ((size_t)end > p->n_data)
        FAIL(ERR_FORMAT, "%s: truncated: %zu bytes of data, expected %lld", p->path, p->n_data,
             (long long)end);
    if ((size_t)end < p->n_data)
        FAIL(ERR_FORMAT, "%s: %zu bytes of data, expected %lld: something follows the last "
             "tensor", p->path, p->n_data, (long long)end);
    return OK;
}

static Status parse_tensors(SafeTensors *f, Arena *a, Parse *p, const Json *root)
{
    const char *slash = strrchr(p->path, '/');
    const char *file = arena_printf(a, "%s", slash ? slash + 1 : p->path);
    if (!file)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    ARENA_NEW(f->tensors, a, root->n);
    ARENA_NEW(p->extents, a, root->n);
    for (int64_t i = 0; i < root->n; i++) {
        const Json *v = root->sorted[i];
        if (strcmp(v->key, "__metadata__") == 0) {
            TRY(check_metadata(v, p->path));
            continue;
        }
        f->tensors[f->n].file = file;
        TRY(read_tensor(&f->tensors[f->n], &p->extents[f->n], p, v));
        f->n++;
    }
    return check_outline(p, f->n);
}

static Status parse_file(SafeTensors *f, Arena *a, const char *path)
{
    size_t      size = 0;
    const Json *root;
    TRY(read_header_size(&size, &f->map, path));
    const char *name = arena_printf(a, "%s: header", path);
    if (!name)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    TRY(json_parse(&root, a, name, f->map.data + 8, size));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s is %s, expected an object", name, json_kind_name(root->kind));
    Parse p = {.path = path, .data = f->map.data + 8 + size, .n_data = f->map.size - 8 - size};
    return parse_tensors(f, a, &p, root);
}

Status safetensors_open(SafeTensors *f, Arena *a, const char *path)
{
    *f = (SafeTensors){0};
    TRY(filemap_open(&f->map, path));
    Status s = parse_file(f, a, path);
    if (s != OK)
        safetensors_close(f);
    return s;
}

void safetensors_close(SafeTensors *f)
{
    filemap_close(&f->map);
    *f = (SafeTensors){0};
}
