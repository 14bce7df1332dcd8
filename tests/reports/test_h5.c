/* test_h5.c - statistics files: round trip, same bytes, and files that are not ours. */
#include "reports/h5.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "kernels/filemap.h"
#include "tests/check.h"
#include "tests/reports/ref_study.h"

static const char *tmp(const char *name)
{
    static char text[4][256];
    static int turn;
    char *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "%s/%s", check_tmp(), name);
    return p;
}

static bool same_series(const Series *a, const Series *b)
{
    if (strcmp(a->name, b->name) || strcmp(a->unit, b->unit) || strcmp(a->about, b->about) ||
        a->type != b->type || a->n_dims != b->n_dims)
        return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->shape[i] != b->shape[i] || strcmp(a->dims[i], b->dims[i]))
            return false;
    return memcmp(a->data, b->data, (size_t)series_count(a) * series_type_size(a->type)) == 0;
}

static bool same_attr(const Attr *a, const Attr *b)
{
    if (!b || a->kind != b->kind)
        return false;
    return a->kind == ATTR_TEXT  ? strcmp(a->text, b->text) == 0
           : a->kind == ATTR_INT ? a->integer == b->integer
                                 : a->real == b->real;
}

static bool same_set(const SeriesSet *a, const SeriesSet *b)
{
    if (strcmp(a->model, b->model) || a->n != b->n || a->n_attrs != b->n_attrs)
        return false;
    for (int64_t i = 0; i < a->n; i++) {
        const Series *other = series_find(b, a->at[i].name);
        if (!other || !same_series(&a->at[i], other))
            return false;
    }
    for (int64_t i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], series_attr(b, a->attrs[i].key)))
            return false;
    return true;
}

TEST(what_was_written_is_read_back)
{
    Arena a = {0};
    SeriesSet sets[2], root, *back, root_back;
    int n;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(series_attr_real(&sets[0], "loss", 0.1));
    series_set_init(&root, &a, "");
    T_STATUS_OK(series_attr_text(&root, "command", "diffquant compare \"a\" b"));
    T_STATUS_OK(series_attr_int(&root, "seed", INT64_MIN));
    T_STATUS_OK(h5_write(&a, tmp("a.h5"), sets, 2, &root));
    T_STATUS_OK(h5_read(&a, tmp("a.h5"), &back, &n, &root_back));
    T_OK(n == 2);
    T_OK(same_set(&sets[0], &back[0]));
    T_OK(same_set(&sets[1], &back[1]));
    T_OK(same_attr(&root.attrs[0], series_attr(&root_back, "command")));
    T_OK(same_attr(&root.attrs[1], series_attr(&root_back, "seed")));
    T_OK(series_attr(&root_back, "schema")->integer == H5_SCHEMA);
    /* What was read can be written again, and is the same file but for the
     * order of attributes. */
    T_STATUS_OK(h5_write(&a, tmp("b.h5"), back, n, &root_back));
    T_STATUS_OK(h5_read(&a, tmp("b.h5"), &back, &n, NULL));
    T_OK(n == 2 && same_set(&sets[1], &back[1]));
    arena_close(&a);
}

TEST(same_sets_give_same_bytes_and_leave_no_memory)
{
    Arena a = {0};
    SeriesSet sets[2];
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(h5_write(&a, tmp("one.h5"), sets, 2, NULL));
    size_t used = a.used;
    sleep(1);  // object times would count seconds
    T_STATUS_OK(h5_write(&a, tmp("two.h5"), sets, 2, NULL));
    T_OK(a.used == used);
    FileMap x, y;
    T_STATUS_OK(filemap_open(&x, tmp("one.h5")));
    T_STATUS_OK(filemap_open(&y, tmp("two.h5")));
    T_OK(x.size == y.size && memcmp(x.data, y.data, x.size) == 0);
    filemap_close(&x);
    filemap_close(&y);
    T_OK(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    arena_close(&a);
}

TEST(dimensions_are_named_scales)
{
    Arena a = {0};
    SeriesSet sets[2];
    char name[64] = "";
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(h5_write(&a, tmp("dims.h5"), sets, 2, NULL));
    hid_t f = H5Fopen(tmp("dims.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, "Diff-Tiny/logits/absmax", H5P_DEFAULT);
    hid_t s = H5Dopen2(f, "Diff-Tiny/map", H5P_DEFAULT);
    hid_t c = H5Dopen2(f, "Diff-Tiny/logit_bits", H5P_DEFAULT);
    T_OK(d >= 0 && s >= 0 && c >= 0);
    T_OK(H5DSget_num_scales(d, 2) == 1 && H5DSis_attached(d, s, 2) > 0);
    T_OK(H5DSget_scale_name(s, name, sizeof name) == 3);
    T_TEXT(name, "map");
    int32_t bits[4];
    T_OK(H5Dread(c, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, bits) >= 0);
    T_OK(bits[0] == 16 && bits[3] == 4);
    hid_t h = H5Dopen2(f, "Diff-Tiny/hidden/histogram", H5P_DEFAULT);
    hid_t plist = H5Dget_create_plist(h);
    T_OK(H5Pget_layout(plist) == H5D_CHUNKED && H5Pget_nfilters(plist) == 2);
    T_OK(H5Dget_storage_size(h) < REF_LAYERS * 8000 * 8 / 2);
    H5Pclose(plist);
    H5Dclose(h);
    H5Dclose(c);
    H5Dclose(s);
    H5Dclose(d);
    H5Fclose(f);
    arena_close(&a);
}

TEST(large_empty_and_long_things_are_kept)
{
    Arena a = {0};
    SeriesSet set, *back;
    Series *s;
    int n;
    series_set_init(&set, &a, "m");
    const char *dims[] = {"row", "column"}, *none[] = {"nothing"};
    T_STATUS_OK(series_add(&set, &s, SERIES_F32, "big", "", "", 2, dims,
                           (int64_t[]){700, 1003}));  // more than two chunks, ragged
    uint64_t seed = 5;
    for (int64_t i = 0; i < series_count(s); i++)
        ((float *)s->data)[i] = check_normal(&seed);
    T_STATUS_OK(series_add(&set, &s, SERIES_U64, "empty", "bits", "", 1, none, (int64_t[]){0}));
    char *text = arena_alloc(&a, 300001, 1);  // longer than an attribute of fixed length
    memset(text, 'x', 300000);
    T_STATUS_OK(series_attr_text(&set, "config", text));
    T_STATUS_OK(series_attr_text(&set, "none", ""));
    T_STATUS_OK(h5_write(&a, tmp("big.h5"), &set, 1, NULL));
    T_STATUS_OK(h5_read(&a, tmp("big.h5"), &back, &n, NULL));
    T_OK(n == 1 && same_set(&set, &back[0]));
    arena_close(&a);
}

TEST(text_that_is_not_utf8_is_replaced)
{
    Arena a = {0};
    SeriesSet set, *back;
    int n;
    series_set_init(&set, &a, "m");
    T_STATUS_OK(series_attr_text(&set, "t", "a\xff\xc3\xa9\xe2\x82z"));
    T_STATUS_OK(h5_write(&a, tmp("utf8.h5"), &set, 1, NULL));
    T_STATUS_OK(h5_read(&a, tmp("utf8.h5"), &back, &n, NULL));
    T_TEXT(series_attr(&back[0], "t")->text,
           "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz");
    arena_close(&a);
}

TEST(sets_that_cannot_be_written_are_refused)
{
    Arena a = {0};
    SeriesSet set[2];
    Series *s;
    const char *dims[] = {"layer"};
    series_set_init(&set[0], &a, "m");
    series_set_init(&set[1], &a, "m");
    T_FAILS(h5_write(&a, tmp("no.h5"), set, 2, NULL), ERR_RANGE, "two models are called m");
    set[1].model = "a/b";
    T_FAILS(h5_write(&a, tmp("no.h5"), set, 2, NULL), ERR_RANGE, "a/b");
    set[1].model = "..";
    T_FAILS(h5_write(&a, tmp("no.h5"), set, 2, NULL), ERR_RANGE, "..");
    T_STATUS_OK(series_add(&set[0], &s, SERIES_F64, "x", "", "", 1, dims, (int64_t[]){3}));
    T_STATUS_OK(series_add(&set[0], &s, SERIES_F64, "y", "", "", 1, dims, (int64_t[]){4}));
    T_FAILS(h5_write(&a, tmp("no.h5"), set, 1, NULL), ERR_SHAPE, "layer has length 3 in x, 4 in y");
    series_set_init(&set[0], &a, "m");
    T_STATUS_OK(series_add(&set[0], &s, SERIES_F64, "x/./y", "", "", 0, NULL, NULL));
    T_FAILS(h5_write(&a, tmp("no.h5"), set, 1, NULL), ERR_RANGE, "x/./y");
    series_set_init(&set[0], &a, "m");
    T_STATUS_OK(series_add(&set[0], &s, SERIES_F64, "x", "", "", 0, NULL, NULL));
    T_STATUS_OK(series_add(&set[0], &s, SERIES_F64, "x/y", "", "", 0, NULL, NULL));
    T_FAILS(h5_write(&a, tmp("no.h5"), set, 1, NULL), ERR_IO, "group x");
    T_OK(access(tmp("no.h5"), F_OK) != 0);
    T_FAILS(h5_write(&a, tmp("none/no.h5"), set, 0, NULL), ERR_IO, "No such file");
    arena_close(&a);
}

TEST(files_of_others_are_refused_in_one_line)
{
    Arena a = {0};
    SeriesSet *back;
    int n;
    T_FAILS(h5_read(&a, tmp("nothing.h5"), &back, &n, NULL), ERR_IO, "No such file");
    FILE *f = fopen(tmp("text.h5"), "w");
    fputs("not a file of numbers", f);
    fclose(f);
    T_FAILS(h5_read(&a, tmp("text.h5"), &back, &n, NULL), ERR_FORMAT, "is not an HDF5 file");
    T_FAILS(h5_read(&a, check_tmp(), &back, &n, NULL), ERR_IO, "directory");
    hid_t h = H5Fcreate(tmp("foreign.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("foreign.h5"), &back, &n, NULL), ERR_FORMAT, "no attribute schema");
    h = H5Fopen(tmp("foreign.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    int schema = H5_SCHEMA + 1;
    T_OK(H5LTset_attribute_int(h, "/", "schema", &schema, 1) >= 0);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("foreign.h5"), &back, &n, NULL), ERR_UNSUPPORTED, "schema 2");
    /* More numbers than the one there is room for. */
    int many[100] = {H5_SCHEMA};
    h = H5Fopen(tmp("foreign.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    T_OK(H5LTset_attribute_int(h, "/", "schema", many, 100) >= 0);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("foreign.h5"), &back, &n, NULL), ERR_FORMAT, "expected one value");
    T_OK(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    arena_close(&a);
}

/* Opens a good file for change, and reads it after. */
static hid_t spoil(Arena *a)
{
    SeriesSet set;
    if (ref_study_one(a, &set) != OK || h5_write(a, tmp("spoilt.h5"), &set, 1, NULL) != OK)
        return -1;
    return H5Fopen(tmp("spoilt.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
}

TEST(wrong_types_shapes_and_links_are_refused)
{
    Arena a = {0};
    SeriesSet *back;
    int n;
    hsize_t shape[5] = {2, 2, 2, 2, 2};
    const char *m = "Base-Tiny";
    hid_t h = spoil(&a), g = H5Gopen2(h, m, H5P_DEFAULT);
    T_OK(h >= 0 && g >= 0);
    T_OK(H5LTmake_dataset_char(g, "bytes", 1, shape, "ab") >= 0);
    H5Gclose(g);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("spoilt.h5"), &back, &n, NULL), ERR_UNSUPPORTED, "Base-Tiny/bytes");

    h = spoil(&a);
    g = H5Gopen2(h, m, H5P_DEFAULT);
    double data[32] = {0};
    T_OK(H5LTmake_dataset_double(g, "five", 5, shape, data) >= 0);
    H5Gclose(g);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("spoilt.h5"), &back, &n, NULL), ERR_UNSUPPORTED, "5 dimensions");

    h = spoil(&a);
    g = H5Gopen2(h, m, H5P_DEFAULT);
    T_OK(H5LTmake_dataset_double(g, "bare", 1, shape, data) >= 0);
    H5Gclose(g);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("spoilt.h5"), &back, &n, NULL), ERR_FORMAT, "has no name");

    h = spoil(&a);
    T_OK(H5Lcreate_external("/etc/passwd", "/", h, "Base-Tiny/out", H5P_DEFAULT,
                            H5P_DEFAULT) >= 0);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("spoilt.h5"), &back, &n, NULL), ERR_FORMAT, "out is a link");

    h = spoil(&a);
    T_OK(H5Lcreate_hard(h, "Base-Tiny", h, "Base-Tiny/round", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Fclose(h);
    T_FAILS(h5_read(&a, tmp("spoilt.h5"), &back, &n, NULL), ERR_FORMAT, "nested deeper");
    arena_close(&a);
}

TEST(a_claim_without_data_takes_no_memory)
{
    Arena a = {0};
    SeriesSet *back;
    int n;
    hid_t h = spoil(&a), plist = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t huge[2] = {UINT64_C(1) << 30, 1 << 20}, chunk[2] = {16, 16};
    T_OK(h >= 0);
    H5Pset_chunk(plist, 2, chunk);
    hid_t space = H5Screate_simple(2, huge, NULL);
    hid_t d = H5Dcreate2(h, "Base-Tiny/huge", H5T_IEEE_F64LE, space, H5P_DEFAULT, plist,
                         H5P_DEFAULT);
    T_OK(d >= 0);
    H5Dclose(d);
    H5Sclose(space);
    H5Pclose(plist);
    H5Fclose(h);
    size_t peak = a.peak;
    T_FAILS(h5_read(&a, tmp("spoilt.h5"), &back, &n, NULL), ERR_FORMAT, "but stores 0");
    T_OK(a.peak < peak + (16 << 20));
    arena_close(&a);
}

TEST(a_file_cut_anywhere_is_an_error)
{
    Arena a = {0};
    SeriesSet set, *back;
    FileMap whole;
    int n;
    T_STATUS_OK(ref_study_one(&a, &set));
    T_STATUS_OK(h5_write(&a, tmp("whole.h5"), &set, 1, NULL));
    T_STATUS_OK(filemap_open(&whole, tmp("whole.h5")));
    static const double cuts[] = {0, 0.0001, 0.002, 0.1, 0.5, 0.9, 0.9999};
    for (int i = 0; i < 7; i++) {
        size_t size = (size_t)((double)whole.size * cuts[i]);
        FILE *f = fopen(tmp("cut.h5"), "w");
        T_OK(f && fwrite(whole.data, 1, size, f) == size);
        fclose(f);
        T_FAILS(h5_read(&a, tmp("cut.h5"), &back, &n, NULL), ERR_FORMAT, "cut.h5: ");
    }
    filemap_close(&whole);
    arena_close(&a);
}

TEST(every_failed_allocation_is_an_error_and_leaves_the_old_file)
{
    Arena a = {0};
    SeriesSet set, *back;
    int n;
    bool done = false;
    T_STATUS_OK(ref_study_one(&a, &set));
    T_STATUS_OK(h5_write(&a, tmp("old.h5"), &set, 1, NULL));
    struct stat before, after;
    T_OK(stat(tmp("old.h5"), &before) == 0);
    int64_t k;
    for (k = 1; k < 1000 && !done; k++) {
        ArenaMark mark = arena_mark(&a);
        arena_fail_at(k);
        Status s = h5_write(&a, tmp("old.h5"), &set, 1, NULL);
        arena_fail_at(0);
        arena_rewind(&a, mark);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(stat(tmp("old.h5"), &after) == 0 && (s == OK || after.st_ino == before.st_ino));
        done = s == OK;
    }
    T_OK(done && k > 30);
    done = false;
    for (k = 1; k < 2000 && !done; k++) {
        Arena scratch = {0};
        arena_fail_at(k);
        Status s = h5_read(&scratch, tmp("old.h5"), &back, &n, NULL);
        arena_fail_at(0);
        arena_close(&scratch);
        T_OK(s == OK || s == ERR_MEMORY);
        done = s == OK;
    }
    T_OK(done && k > 50);
    T_OK(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    arena_close(&a);
}
