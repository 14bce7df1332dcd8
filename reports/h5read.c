/* h5read.c - SeriesSets back from an HDF5 file of h5write.c.
 * The file may be another program's, changed by hand, or cut short: shapes,
 * types and sizes are checked before memory is taken, and only hard links to
 * groups and datasets are followed, to a depth. (HDF5 1.10 itself can crash on
 * bits flipped within its heaps of text; that is not to be caught from here.) */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "kernels/size.h"
#include "reports/h5.h"
#include "reports/h5file.h"

enum { MAX_DEPTH = 8, NAME_BYTES = 256 };

typedef struct {
    H5File file;
    Arena *arena;
    char   what[4 * NAME_BYTES];   // "reading M/logits/max", for errors
} Reader;

/* --- attributes --- */

/* HDF5 writes as many values as the file says there are: before any of them is
 * read into one variable. */
static Status check_single(Reader *r, hid_t attr)
{
    hid_t space;
    TRY(h5file_keep(&r->file, &space, H5Aget_space(attr), r->what));
    if (H5Sget_simple_extent_npoints(space) != 1)
        FAIL(ERR_FORMAT, "%s: %s: expected one value", r->file.path, r->what);
    return OK;
}

static Status read_text(Reader *r, hid_t attr, hid_t type, const char **out)
{
    char *text = NULL;
    if (H5Tis_variable_str(type) <= 0)
        FAIL(ERR_UNSUPPORTED, "%s: %s: expected text of variable length", r->file.path, r->what);
    TRY(h5file_check(&r->file, H5Aread(attr, type, &text), r->what));
    *out = arena_text(r->arena, text ? text : "", text ? strlen(text) : 0);
    H5free_memory(text);
    if (!*out)
        FAIL(ERR_MEMORY, "%s: out of memory: %s", r->file.path, r->what);
    return OK;
}

/* One text or one number. key lives in the arena. */
static Status read_attr(Reader *r, hid_t attr, const char *key, SeriesSet *set)
{
    hid_t type;
    TRY(h5file_keep(&r->file, &type, H5Aget_type(attr), r->what));
    TRY(check_single(r, attr));
    int64_t integer;
    double real;
    const char *text;
    switch (H5Tget_class(type)) {
    case H5T_STRING:
        TRY(read_text(r, attr, type, &text));
        return series_attr_text(set, key, text);
    case H5T_INTEGER:
        TRY(h5file_check(&r->file, H5Aread(attr, H5T_NATIVE_INT64, &integer), r->what));
        return series_attr_int(set, key, integer);
    case H5T_FLOAT:
        TRY(h5file_check(&r->file, H5Aread(attr, H5T_NATIVE_DOUBLE, &real), r->what));
        return series_attr_real(set, key, real);
    default:
        FAIL(ERR_UNSUPPORTED, "%s: %s: expected text or a number", r->file.path, r->what);
    }
}

static Status read_attrs(Reader *r, hid_t where, SeriesSet *set)
{
    H5O_info_t info;
    TRY(h5file_check(&r->file, H5Oget_info2(where, &info, H5O_INFO_NUM_ATTRS), r->what));
    for (hsize_t i = 0; i < info.num_attrs; i++) {
        int ids = r->file.n;
        char key[NAME_BYTES];
        hid_t attr;
        snprintf(r->what, sizeof r->what, "reading attribute %llu of %s",
                 (unsigned long long)i, set->model);
        TRY(h5file_keep(&r->file, &attr,
                        H5Aopen_by_idx(where, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT,
                                       H5P_DEFAULT), r->what));
        TRY(h5file_check(&r->file, H5Aget_name(attr, sizeof key, key), r->what));
        snprintf(r->what, sizeof r->what, "reading attribute %s of %s", key, set->model);
        char *kept = arena_text(r->arena, key, strlen(key));
        if (!kept)
            FAIL(ERR_MEMORY, "%s: out of memory: %s", r->file.path, r->what);
        TRY(read_attr(r, attr, kept, set));
        h5file_release(&r->file, ids);
    }
    return OK;
}

/* A text attribute of a dataset, "" where it is missing. */
static Status read_note(Reader *r, hid_t set, const char *key, const char **out)
{
    hid_t attr, type;
    *out = "";
    htri_t there = H5Aexists(set, key);
    TRY(h5file_check(&r->file, there, r->what));
    if (!there)
        return OK;
    TRY(h5file_keep(&r->file, &attr, H5Aopen(set, key, H5P_DEFAULT), r->what));
    TRY(h5file_keep(&r->file, &type, H5Aget_type(attr), r->what));
    TRY(check_single(r, attr));
    return read_text(r, attr, type, out);
}

/* --- datasets --- */

static Status series_type_of(Reader *r, hid_t type, SeriesType *out, hid_t *memory)
{
    H5T_class_t class = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    if (class == H5T_FLOAT && size == 8)
        *out = SERIES_F64, *memory = H5T_NATIVE_DOUBLE;
    else if (class == H5T_FLOAT && size == 4)
        *out = SERIES_F32, *memory = H5T_NATIVE_FLOAT;
    else if (is_signed && size == 8)
        *out = SERIES_I64, *memory = H5T_NATIVE_INT64;
    else if (class == H5T_INTEGER && !is_signed && size == 8)
        *out = SERIES_U64, *memory = H5T_NATIVE_UINT64;
    else if (is_signed && size == 4)
        *out = SERIES_I32, *memory = H5T_NATIVE_INT32;
    else
        FAIL(ERR_UNSUPPORTED, "%s: %s: a type of %zu bytes, expected f64, f32, i64, u64 or i32",
             r->file.path, r->what, size);
    return OK;
}

static Status read_shape(Reader *r, hid_t set, int *n_dims, int64_t *shape)
{
    hid_t space;
    hsize_t dims[SERIES_MAX_DIMS];
    TRY(h5file_keep(&r->file, &space, H5Dget_space(set), r->what));
    H5S_class_t class = H5Sget_simple_extent_type(space);
    *n_dims = H5Sget_simple_extent_ndims(space);
    if ((class != H5S_SIMPLE && class != H5S_SCALAR) || *n_dims < 0 ||
        *n_dims > SERIES_MAX_DIMS)
        FAIL(ERR_UNSUPPORTED, "%s: %s: %d dimensions, expected at most %d", r->file.path,
             r->what, *n_dims, SERIES_MAX_DIMS);
    TRY(h5file_check(&r->file, H5Sget_simple_extent_dims(space, dims, NULL), r->what));
    for (int i = 0; i < *n_dims; i++) {
        if (dims[i] > INT64_MAX)
            FAIL(ERR_SHAPE, "%s: %s: dimension %d is too large", r->file.path, r->what, i);
        shape[i] = (int64_t)dims[i];
    }
    return OK;
}

/* Deflate shrinks at most about 1032-fold: a larger claim is a lie, told before
 * the memory for it is taken. */
static Status check_claim(Reader *r, hid_t set, SeriesType type, int n_dims,
                          const int64_t *shape)
{
    size_t bytes = series_type_size(type), most;
    hsize_t stored = H5Dget_storage_size(set);
    for (int i = 0; i < n_dims; i++)
        if (!size_mul(bytes, (size_t)shape[i], &bytes))
            FAIL(ERR_SHAPE, "%s: %s: its shape does not fit in memory", r->file.path, r->what);
    if (!size_mul(1100, (size_t)stored, &most))
        most = SIZE_MAX;
    if (bytes > most)
        FAIL(ERR_FORMAT, "%s: %s: claims %zu bytes but stores %llu", r->file.path, r->what,
             bytes, (unsigned long long)stored);
    return OK;
}

static herr_t take_scale_name(hid_t set, unsigned dim, hid_t scale, void *out)
{
    (void)set;
    (void)dim;
    return H5DSget_scale_name(scale, out, NAME_BYTES) < 0 ? -1 : 1;
}

/* The name of the scale attached to dimension i; a coordinate is its own. */
static Status read_dim(Reader *r, hid_t set, const char *name, int i, const char **out)
{
    char text[NAME_BYTES] = "";
    htri_t is_scale = H5DSis_scale(set);
    TRY(h5file_check(&r->file, is_scale, r->what));
    if (is_scale)
        snprintf(text, sizeof text, "%s", name);
    else
        TRY(h5file_check(&r->file, H5DSiterate_scales(set, (unsigned)i, NULL, take_scale_name,
                                                      text), r->what));
    if (!text[0])
        FAIL(ERR_FORMAT, "%s: %s: dimension %d has no name (dimension scale)", r->file.path,
             r->what, i);
    *out = arena_text(r->arena, text, strlen(text));
    if (!*out)
        FAIL(ERR_MEMORY, "%s: out of memory: %s", r->file.path, r->what);
    return OK;
}

static Status read_dataset(Reader *r, hid_t set_id, const char *name, SeriesSet *set)
{
    hid_t type_id, memory = -1;
    SeriesType type = SERIES_F64;
    int n_dims;
    int64_t shape[SERIES_MAX_DIMS] = {0};
    const char *dims[SERIES_MAX_DIMS], *unit, *about;
    Series *s;
    TRY(h5file_keep(&r->file, &type_id, H5Dget_type(set_id), r->what));
    TRY(series_type_of(r, type_id, &type, &memory));
    TRY(read_shape(r, set_id, &n_dims, shape));
    TRY(check_claim(r, set_id, type, n_dims, shape));
    for (int i = 0; i < n_dims; i++)
        TRY(read_dim(r, set_id, name, i, &dims[i]));
    TRY(read_note(r, set_id, "units", &unit));
    TRY(read_note(r, set_id, "long_name", &about));
    TRY(series_add(set, &s, type, name, unit, about, n_dims, dims, shape));
    return h5file_check(&r->file, H5Dread(set_id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                                          s->data), r->what);
}

/* --- groups --- */

/* Name of link i of the group in the order it was made, into name[NAME_BYTES]. */
static Status link_name(Reader *r, hid_t group, hsize_t i, char *name)
{
    ssize_t n = H5Lget_name_by_idx(group, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, name,
                                   NAME_BYTES, H5P_DEFAULT);
    TRY(h5file_check(&r->file, n, r->what));
    if (n == 0 || n >= NAME_BYTES)
        FAIL(ERR_FORMAT, "%s: %s: a name of %lld bytes, expected 1 to %d", r->file.path, r->what,
             (long long)n, NAME_BYTES - 1);
    H5L_info_t info;
    TRY(h5file_check(&r->file, H5Lget_info(group, name, &info, H5P_DEFAULT), r->what));
    if (info.type != H5L_TYPE_HARD)
        FAIL(ERR_FORMAT, "%s: %s is a link, expected a group or a dataset", r->file.path, name);
    return OK;
}

static Status read_group(Reader *r, hid_t group, const char *prefix, int depth, SeriesSet *set);

static Status read_object(Reader *r, hid_t object, const char *name, int depth, SeriesSet *set)
{
    htri_t index_only;
    switch (H5Iget_type(object)) {
    case H5I_GROUP:
        return read_group(r, object, name, depth + 1, set);
    case H5I_DATASET:
        index_only = H5Aexists(object, "index_only");
        TRY(h5file_check(&r->file, index_only, r->what));
        return index_only ? OK : read_dataset(r, object, name, set);
    default:
        FAIL(ERR_FORMAT, "%s: %s: expected a group or a dataset", r->file.path, r->what);
    }
}

static Status read_group(Reader *r, hid_t group, const char *prefix, int depth, SeriesSet *set)
{
    H5G_info_t info;
    if (depth > MAX_DEPTH)
        FAIL(ERR_FORMAT, "%s: groups are nested deeper than %d", r->file.path, MAX_DEPTH);
    TRY(h5file_check(&r->file, H5Gget_info(group, &info), r->what));
    for (hsize_t i = 0; i < info.nlinks; i++) {
        int ids = r->file.n;
        char name[NAME_BYTES];
        hid_t object;
        TRY(link_name(r, group, i, name));
        const char *full = arena_printf(r->arena, "%s%s%s", prefix, prefix[0] ? "/" : "", name);
        if (!full)
            FAIL(ERR_MEMORY, "%s: out of memory: %s", r->file.path, name);
        snprintf(r->what, sizeof r->what, "reading %s/%s", set->model, full);
        TRY(h5file_keep(&r->file, &object, H5Oopen(group, name, H5P_DEFAULT), r->what));
        TRY(read_object(r, object, full, depth, set));
        h5file_release(&r->file, ids);
    }
    return OK;
}

/* --- the file --- */

/* Says why in words before HDF5 is asked, whose answer is the same for all. */
static Status check_signature(const char *path)
{
    static const unsigned char signature[8] = "\x89HDF\r\n\x1a\n";
    unsigned char head[8] = {0};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // a pipe is refused, not awaited
    if (fd < 0)
        FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    ssize_t n = read(fd, head, sizeof head);
    int reason = errno;
    close(fd);
    if (n < 0)
        FAIL(ERR_IO, "%s: cannot be read: %s", path, strerror(reason));
    if (n < 8 || memcmp(head, signature, 8) != 0)
        FAIL(ERR_FORMAT, "%s: is not an HDF5 file", path);
    return OK;
}

static Status open_file(Reader *r, hid_t *root)
{
    H5File *f = &r->file;
    hid_t access;
    TRY(check_signature(f->path));
    snprintf(r->what, sizeof r->what, "opening");
    TRY(h5file_keep(f, &access, H5Pcreate(H5P_FILE_ACCESS), r->what));
    TRY(h5file_check(f, H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), r->what));
    hid_t id = H5Fopen(f->path, H5F_ACC_RDONLY, access);
    if (id < 0)
        FAIL(ERR_FORMAT, "%s: truncated or damaged: %s (HDF5)", f->path, h5file_reason());
    return h5file_keep(f, root, id, r->what);
}

static Status check_schema(Reader *r, hid_t root)
{
    hid_t attr, type;
    int64_t schema;
    htri_t there = H5Aexists(root, "schema");
    if (there > 0) {
        snprintf(r->what, sizeof r->what, "reading attribute schema");
        TRY(h5file_keep(&r->file, &attr, H5Aopen(root, "schema", H5P_DEFAULT), r->what));
        TRY(h5file_keep(&r->file, &type, H5Aget_type(attr), r->what));
    }
    if (there <= 0 || H5Tget_class(type) != H5T_INTEGER)
        FAIL(ERR_FORMAT, "%s: is not a statistics file of diffquant: no attribute schema",
             r->file.path);
    TRY(check_single(r, attr));
    TRY(h5file_check(&r->file, H5Aread(attr, H5T_NATIVE_INT64, &schema), r->what));
    if (schema < 1 || schema > H5_SCHEMA)
        FAIL(ERR_UNSUPPORTED, "%s: schema %lld, this program reads 1 to %d", r->file.path,
             (long long)schema, H5_SCHEMA);
    return OK;
}

static Status read_sets(Reader *r, hid_t root, SeriesSet **sets, int *n_sets)
{
    H5G_info_t info;
    TRY(h5file_check(&r->file, H5Gget_info(root, &info), r->what));
    if (info.nlinks < 1 || info.nlinks > 4096)
        FAIL(ERR_FORMAT, "%s: %llu models, expected at least one", r->file.path,
             (unsigned long long)info.nlinks);
    ARENA_NEW(*sets, r->arena, (int64_t)info.nlinks);
    for (hsize_t i = 0; i < info.nlinks; i++) {
        int ids = r->file.n;
        char name[NAME_BYTES];
        hid_t group;
        TRY(link_name(r, root, i, name));
        char *model = arena_text(r->arena, name, strlen(name));
        if (!model)
            FAIL(ERR_MEMORY, "%s: out of memory: %s", r->file.path, name);
        series_set_init(&(*sets)[i], r->arena, model);
        snprintf(r->what, sizeof r->what, "reading model %s", name);
        TRY(h5file_keep(&r->file, &group, H5Gopen2(root, name, H5P_DEFAULT), r->what));
        TRY(read_attrs(r, group, &(*sets)[i]));
        TRY(read_group(r, group, "", 0, &(*sets)[i]));
        h5file_release(&r->file, ids);
    }
    *n_sets = (int)info.nlinks;
    return OK;
}

Status h5_read(Arena *a, const char *path, SeriesSet **sets, int *n_sets, SeriesSet *root)
{
    Status s = OK;
    Reader r = {.arena = a};
    hid_t file;
    *sets = NULL;
    *n_sets = 0;
    h5file_init(&r.file, path);
    GUARD(open_file(&r, &file));
    GUARD(check_schema(&r, file));
    if (root) {
        series_set_init(root, a, "the file");
        GUARD(read_attrs(&r, file, root));
    }
    s = read_sets(&r, file, sets, n_sets);
out:
    h5file_release(&r.file, 0);
    return s;
}
