/* h5write.c - SeriesSets into an HDF5 file.
 * The file is built in memory (core driver) and saved whole: HDF5 itself never
 * meets a full disk, which its library cannot report in an orderly way. */
#include <stdio.h>
#include <string.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "kernels/size.h"
#include "reports/h5.h"
#include "reports/h5file.h"
#include "kernels/outfile.h"
#include "analysis/textbuf.h"

enum { CHUNK_BYTES = 1 << 20, SMALL_BYTES = 2048, DEFLATE_LEVEL = 6, NAME_BYTES = 256 };

typedef struct {
    H5File file;
    Arena *arena;
    hid_t  root, group_plist, text_type;
    char   what[NAME_BYTES + 64];   // "writing M/logits/max", for errors
} Writer;

static hid_t disk_type(SeriesType t)
{
    switch (t) {
    case SERIES_F64:
        return H5T_IEEE_F64LE;
    case SERIES_F32:
        return H5T_IEEE_F32LE;
    case SERIES_I64:
        return H5T_STD_I64LE;
    case SERIES_U64:
        return H5T_STD_U64LE;
    case SERIES_I32:
        return H5T_STD_I32LE;
    }
    CHECK(!"a known series type");
    return -1;
}

static hid_t memory_type(SeriesType t)
{
    switch (t) {
    case SERIES_F64:
        return H5T_NATIVE_DOUBLE;
    case SERIES_F32:
        return H5T_NATIVE_FLOAT;
    case SERIES_I64:
        return H5T_NATIVE_INT64;
    case SERIES_U64:
        return H5T_NATIVE_UINT64;
    case SERIES_I32:
        return H5T_NATIVE_INT32;
    }
    CHECK(!"a known series type");
    return -1;
}

/* --- attributes --- */

static Status write_attr(Writer *w, hid_t where, const char *key, hid_t disk, hid_t memory,
                         const void *value)
{
    hid_t space, attr;
    int n = w->file.n;
    snprintf(w->what, sizeof w->what, "writing attribute %.200s", key);
    TRY(h5file_keep(&w->file, &space, H5Screate(H5S_SCALAR), w->what));
    TRY(h5file_keep(&w->file, &attr,
                    H5Acreate2(where, key, disk, space, H5P_DEFAULT, H5P_DEFAULT), w->what));
    TRY(h5file_check(&w->file, H5Awrite(attr, memory, value), w->what));
    h5file_release(&w->file, n);
    return OK;
}

/* Strings of variable length: those of fixed length end at 64 KiB, and a
 * config.json may be longer. Readers take them for UTF-8, so they are. */
static Status write_text(Writer *w, hid_t where, const char *key, const char *text)
{
    ArenaMark mark = arena_mark(w->arena);
    TextBuf clean;
    textbuf_init(&clean, w->arena);
    textbuf_utf8(&clean, text);
    TRY(textbuf_status(&clean));
    const char *at = clean.at;
    TRY(write_attr(w, where, key, w->text_type, w->text_type, &at));
    arena_rewind(w->arena, mark);
    return OK;
}

static Status write_attrs(Writer *w, hid_t where, const SeriesSet *set)
{
    for (int64_t i = 0; i < set->n_attrs; i++) {
        const Attr *at = &set->attrs[i];
        if (where == w->root && strcmp(at->key, "schema") == 0)
            continue;  // that of a file that was read; ours is written already
        if (at->kind == ATTR_TEXT)
            TRY(write_text(w, where, at->key, at->text));
        else if (at->kind == ATTR_INT)
            TRY(write_attr(w, where, at->key, H5T_STD_I64LE, H5T_NATIVE_INT64, &at->integer));
        else
            TRY(write_attr(w, where, at->key, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &at->real));
    }
    return OK;
}

/* --- datasets --- */

/* Whole rows of the last dimensions while they fit a chunk. */
static void chunk_shape(hsize_t *chunk, const Series *s)
{
    size_t bytes = series_type_size(s->type);
    for (int i = s->n_dims - 1; i >= 0; i--) {
        size_t fit = CHUNK_BYTES / bytes;
        chunk[i] = (hsize_t)i64_max(1, i64_min(s->shape[i], (int64_t)fit));
        bytes *= (size_t)chunk[i];
    }
}

static Status dataset_plist(Writer *w, hid_t *plist, const Series *s)
{
    H5File *f = &w->file;
    TRY(h5file_keep(f, plist, H5Pcreate(H5P_DATASET_CREATE), w->what));
    /* Times would make two files of the same run differ. */
    TRY(h5file_check(f, H5Pset_obj_track_times(*plist, 0), w->what));
    TRY(h5file_check(f, H5Pset_attr_creation_order(
                            *plist, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), w->what));
    if (series_count(s) * (int64_t)series_type_size(s->type) < SMALL_BYTES)
        return OK;  // the index of one chunk takes 2 KiB
    hsize_t chunk[SERIES_MAX_DIMS];
    chunk_shape(chunk, s);
    TRY(h5file_check(f, H5Pset_chunk(*plist, s->n_dims, chunk), w->what));
    TRY(h5file_check(f, H5Pset_shuffle(*plist), w->what));
    return h5file_check(f, H5Pset_deflate(*plist, DEFLATE_LEVEL), w->what);
}

/* Creates name in where and writes s there. *out stays open in the list. */
static Status write_dataset(Writer *w, hid_t *out, hid_t where, const char *name,
                            const Series *s)
{
    H5File *f = &w->file;
    hid_t plist, space;
    hsize_t shape[SERIES_MAX_DIMS];
    for (int i = 0; i < s->n_dims; i++)
        shape[i] = (hsize_t)s->shape[i];
    snprintf(w->what, sizeof w->what, "writing %.200s", s->name);
    TRY(dataset_plist(w, &plist, s));
    TRY(h5file_keep(f, &space, s->n_dims ? H5Screate_simple(s->n_dims, shape, NULL)
                                         : H5Screate(H5S_SCALAR), w->what));
    TRY(h5file_keep(f, out, H5Dcreate2(where, name, disk_type(s->type), space, H5P_DEFAULT,
                                       plist, H5P_DEFAULT), w->what));
    TRY(h5file_check(f, H5Dwrite(*out, memory_type(s->type), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                                 s->data), w->what));
    if (s->unit && s->unit[0])
        TRY(write_text(w, *out, "units", s->unit));
    if (s->about && s->about[0])
        TRY(write_text(w, *out, "long_name", s->about));
    return OK;
}

/* The group below where called name[0..n), made if need be. */
static Status open_group(Writer *w, hid_t *out, hid_t where, const char *name, size_t n)
{
    char text[NAME_BYTES];
    CHECK(n < sizeof text);
    memcpy(text, name, n);
    text[n] = 0;
    snprintf(w->what, sizeof w->what, "making group %.200s", text);
    htri_t there = H5Lexists(where, text, H5P_DEFAULT);
    TRY(h5file_check(&w->file, there, w->what));
    hid_t id = there ? H5Gopen2(where, text, H5P_DEFAULT)
                     : H5Gcreate2(where, text, H5P_DEFAULT, w->group_plist, H5P_DEFAULT);
    return h5file_keep(&w->file, out, id, w->what);
}

/* --- dimensions --- */

/* The series that gives the values along dim: 1-D, with the dim's name. */
static bool is_coordinate(const Series *s)
{
    return s->n_dims == 1 && strcmp(s->name, s->dims[0]) == 0;
}

/* Is (s, i) the first use of its dimension in the set? Else *first is it. */
static bool first_use(const SeriesSet *set, int64_t at, int i, const Series **first, int *dim)
{
    for (int64_t j = 0; j <= at; j++)
        for (int k = 0; k < set->at[j].n_dims; k++) {
            if (j == at && k == i)
                return true;
            if (strcmp(set->at[j].dims[k], set->at[at].dims[i]) == 0) {
                *first = &set->at[j];
                *dim = k;
                return false;
            }
        }
    return true;
}

/* A scale that only counts: 0, 1, 2, ... */
static Status write_index_scale(Writer *w, hid_t group, const char *name, int64_t n)
{
    ArenaMark mark = arena_mark(w->arena);
    int ids = w->file.n;
    int32_t *values;
    int64_t one = 1;
    hid_t set;
    if (n > INT32_MAX)
        FAIL(ERR_RANGE, "%s: dimension %s has length %lld, at most %d can be indexed",
             w->file.path, name, (long long)n, INT32_MAX);
    ARENA_NEW(values, w->arena, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = (int32_t)i;
    Series s = {.name = name, .unit = "", .about = "", .type = SERIES_I32, .n_dims = 1,
                .dims = {name}, .shape = {n}, .data = values};
    TRY(write_dataset(w, &set, group, name, &s));
    TRY(write_attr(w, set, "index_only", H5T_STD_I64LE, H5T_NATIVE_INT64, &one));
    TRY(h5file_check(&w->file, H5DSset_scale(set, name), w->what));
    h5file_release(&w->file, ids);
    arena_rewind(w->arena, mark);
    return OK;
}

static Status write_scales(Writer *w, hid_t group, const SeriesSet *set)
{
    for (int64_t at = 0; at < set->n; at++)
        for (int i = 0; i < set->at[at].n_dims; i++) {
            const Series *s = &set->at[at], *first;
            int dim;
            if (!first_use(set, at, i, &first, &dim)) {
                if (first->shape[dim] != s->shape[i])
                    FAIL(ERR_SHAPE, "%s: dimension %s has length %lld in %s, %lld in %s",
                         w->file.path, s->dims[i], (long long)first->shape[dim], first->name,
                         (long long)s->shape[i], s->name);
                continue;
            }
            const Series *coordinate = series_find(set, s->dims[i]);
            if (!coordinate || !is_coordinate(coordinate))
                TRY(write_index_scale(w, group, s->dims[i], s->shape[i]));
        }
    return OK;
}

static Status attach_scales(Writer *w, hid_t group, const Series *s)
{
    int ids = w->file.n;
    hid_t set, scale;
    if (is_coordinate(s))
        return OK;
    snprintf(w->what, sizeof w->what, "attaching dimensions of %.200s", s->name);
    TRY(h5file_keep(&w->file, &set, H5Dopen2(group, s->name, H5P_DEFAULT), w->what));
    for (int i = 0; i < s->n_dims; i++) {
        TRY(h5file_keep(&w->file, &scale, H5Dopen2(group, s->dims[i], H5P_DEFAULT), w->what));
        TRY(h5file_check(&w->file, H5DSattach_scale(set, scale, (unsigned)i), w->what));
    }
    h5file_release(&w->file, ids);
    return OK;
}

/* --- sets --- */

static Status write_series(Writer *w, hid_t group, const Series *s)
{
    int ids = w->file.n;
    hid_t where = group, set;
    const char *name = s->name, *slash;
    while ((slash = strchr(name, '/')) != NULL) {
        TRY(open_group(w, &where, where, name, (size_t)(slash - name)));
        name = slash + 1;
    }
    TRY(write_dataset(w, &set, where, name, s));
    if (is_coordinate(s))
        TRY(h5file_check(&w->file, H5DSset_scale(set, name), w->what));
    h5file_release(&w->file, ids);
    return OK;
}

static Status write_set(Writer *w, const SeriesSet *set)
{
    int ids = w->file.n;
    hid_t group;
    TRY(open_group(w, &group, w->root, set->model, strlen(set->model)));
    TRY(write_attrs(w, group, set));
    TRY(write_scales(w, group, set));
    for (int64_t i = 0; i < set->n; i++)
        TRY(write_series(w, group, &set->at[i]));
    for (int64_t i = 0; i < set->n; i++)
        TRY(attach_scales(w, group, &set->at[i]));
    h5file_release(&w->file, ids);
    return OK;
}

/* A name HDF5 can hold: parts between slashes, none empty, "." or "..". */
static bool name_is_valid(const char *name, bool slashes)
{
    size_t n = strlen(name);
    if (n == 0 || n >= NAME_BYTES || (!slashes && strchr(name, '/')))
        return false;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/' && p != name;
        size_t part = strcspn(p, "/");
        if (part == 0 || (part == 1 && p[0] == '.') || (part == 2 && strncmp(p, "..", 2) == 0))
            return false;
    }
    return true;
}

static Status check_names(const char *path, const SeriesSet *sets, int n_sets)
{
    for (int i = 0; i < n_sets; i++) {
        if (!name_is_valid(sets[i].model, false))
            FAIL(ERR_RANGE, "%s: \"%s\" as a model's name, expected one that can name a group",
                 path, sets[i].model);
        for (int j = 0; j < i; j++)
            if (strcmp(sets[i].model, sets[j].model) == 0)
                FAIL(ERR_RANGE, "%s: two models are called %s, expected different names", path,
                     sets[i].model);
        for (int64_t k = 0; k < sets[i].n; k++)
            if (!name_is_valid(sets[i].at[k].name, true))
                FAIL(ERR_RANGE, "%s: \"%s\" as a series' name, expected one that can name a "
                     "dataset", path, sets[i].at[k].name);
    }
    return OK;
}

static Status create_file(Writer *w)
{
    H5File *f = &w->file;
    hid_t access, create;
    unsigned order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    snprintf(w->what, sizeof w->what, "creating");
    TRY(h5file_keep(f, &access, H5Pcreate(H5P_FILE_ACCESS), w->what));
    /* Grows by single bytes, so that the image ends where the file does. */
    TRY(h5file_check(f, H5Pset_fapl_core(access, 1, 0), w->what));
    /* Not V110: its superblock has a flag "open for writing", cleared at closing,
     * and we save the image of a file that is still open. */
    TRY(h5file_check(f, H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18),
                     w->what));
    TRY(h5file_check(f, H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), w->what));
    TRY(h5file_keep(f, &create, H5Pcreate(H5P_FILE_CREATE), w->what));
    TRY(h5file_check(f, H5Pset_obj_track_times(create, 0), w->what));
    TRY(h5file_check(f, H5Pset_link_creation_order(create, order), w->what));
    TRY(h5file_keep(f, &w->group_plist, H5Pcreate(H5P_GROUP_CREATE), w->what));
    TRY(h5file_check(f, H5Pset_obj_track_times(w->group_plist, 0), w->what));
    TRY(h5file_check(f, H5Pset_link_creation_order(w->group_plist, order), w->what));
    TRY(h5file_check(f, H5Pset_attr_creation_order(w->group_plist, order), w->what));
    TRY(h5file_keep(f, &w->text_type, H5Tcopy(H5T_C_S1), w->what));
    TRY(h5file_check(f, H5Tset_size(w->text_type, H5T_VARIABLE), w->what));
    TRY(h5file_check(f, H5Tset_cset(w->text_type, H5T_CSET_UTF8), w->what));
    return h5file_keep(f, &w->root, H5Fcreate(f->path, H5F_ACC_TRUNC, create, access),
                       w->what);
}

/* The core driver's own memory, which after a flush is the file. (Not
 * H5Fget_file_image: HDF5 1.10 clears flags in that copy of the superblock and
 * leaves its checksum as it was.) */
static Status save_image(Writer *w)
{
    H5File *f = &w->file;
    void *handle = NULL;
    hsize_t n = 0;
    snprintf(w->what, sizeof w->what, "finishing");
    TRY(h5file_check(f, H5Fflush(w->root, H5F_SCOPE_GLOBAL), w->what));
    TRY(h5file_check(f, H5Fget_filesize(w->root, &n), w->what));
    TRY(h5file_check(f, H5Fget_vfd_handle(w->root, H5P_DEFAULT, &handle), w->what));
    const void *image = *(void **)handle;
    return outfile_save(w->arena, f->path, image, (size_t)n);
}

Status h5_write(Arena *a, const char *path, const SeriesSet *sets, int n_sets,
                const SeriesSet *root)
{
    Status s = OK;
    Writer w = {.arena = a};
    ArenaMark mark = arena_mark(a);
    int64_t schema = H5_SCHEMA;
    TRY(check_names(path, sets, n_sets));
    h5file_init(&w.file, path);
    GUARD(create_file(&w));
    GUARD(write_attr(&w, w.root, "schema", H5T_STD_I64LE, H5T_NATIVE_INT64, &schema));
    if (root)
        GUARD(write_attrs(&w, w.root, root));
    for (int i = 0; i < n_sets; i++)
        GUARD(write_set(&w, &sets[i]));
    s = save_image(&w);
out:
    h5file_release(&w.file, 0);
    arena_rewind(a, mark);
    return s;
}
