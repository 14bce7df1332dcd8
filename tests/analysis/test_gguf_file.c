/* test_gguf_file.c - the container: one malformed file for each way to be malformed,
 * every truncation, flipped bytes, allocations that fail. */
#include "analysis/model/gguf_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/analysis/ref_checkpoint.h"
#include "tests/analysis/ref_gguf.h"
#include "tests/check.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, LIST, U64, I64, F64 };
enum { TYPE_F32 = 0, TYPE_Q4_K = 12 };

static Arena arena;

static const char *file_path(void)
{
    return ref_path("x.gguf");
}

static Status open_file(GgufFile *f, RefGguf *g)
{
    const char *path = file_path();
    ref_gguf_save(g, path);
    arena_close(&arena);
    return gguf_file_open(f, &arena, path);
}

/* A file with something of everything: 5 keys, 2 tensors. */
static void whole(RefGguf *g, uint32_t version)
{
    static const int16_t SHORTS[] = {-3, 7};
    ref_gguf_begin(g, version, 2, 6);
    ref_gguf_key_text(g, "name", "L\xc3\xa9on");
    ref_gguf_key_u32(g, "count", 70000);
    ref_gguf_key_f32(g, "eps", 1e-5f);
    ref_gguf_key_bool(g, "yes", true);
    ref_gguf_key_list(g, "shorts", I16, 2);
    ref_gguf_bytes(g, SHORTS, sizeof SHORTS);
    ref_gguf_key_list(g, "texts", TEXT, 3);
    ref_gguf_name(g, "a");
    ref_gguf_name(g, "");
    ref_gguf_name(g, "bc");
    ref_gguf_tensor(g, "m", TYPE_Q4_K, 2, (uint64_t[]){256, 3}, 3 * 144);
    ref_gguf_tensor(g, "v", TYPE_F32, 1, (uint64_t[]){5}, 20);
    ref_gguf_data(g);
}

static void check_whole(const GgufFile *f)
{
    const char  *text, **texts;
    int64_t      count = 0, n;
    int32_t     *ints;
    float       *reals;
    double       eps = 0, big = 0;
    bool         yes = false;
    T_OK(f->n_keys == 6 && f->n_tensors == 2);
    T_STATUS_OK(gguf_key_text(&text, &arena, f, "name"));
    T_TEXT(text, "L\xc3\xa9on");
    T_STATUS_OK(gguf_key_int(&count, f, "count", 0, 1 << 20));
    T_OK(count == 70000);
    T_STATUS_OK(gguf_key_real(&eps, f, "eps"));
    T_OK(eps == (double)1e-5f);
    T_STATUS_OK(gguf_key_real(&big, f, "count"));
    T_OK(big == 70000);
    T_STATUS_OK(gguf_key_bool(&yes, f, "yes"));
    T_OK(yes);
    T_STATUS_OK(gguf_key_ints(&ints, &n, &arena, f, "shorts"));
    T_OK(n == 2 && ints[0] == -3 && ints[1] == 7);
    T_STATUS_OK(gguf_key_reals(&reals, &n, &arena, f, "shorts"));
    T_OK(n == 2 && reals[0] == -3 && reals[1] == 7);
    T_STATUS_OK(gguf_key_texts(&texts, &n, &arena, f, "texts"));
    T_OK(n == 3);
    T_TEXT(texts[0], "a");
    T_TEXT(texts[1], "");
    T_TEXT(texts[2], "bc");
    const GgufTensor *m = gguf_tensor(f, "m"), *v = gguf_tensor(f, "v");
    T_OK(m && m->is_block && m->block == BLOCK_Q4_K && m->bytes == 3 * 144);
    T_OK(m->n_dims == 2 && m->ne[0] == 256 && m->ne[1] == 3 && *m->data == 1);
    T_OK(v && !v->is_block && v->dtype == DTYPE_F32 && v->bytes == 20);
    T_OK(v->data - m->data == 448);  // 432 padded to 32
    T_OK(!gguf_tensor(f, "w") && !gguf_key(f, "nam") && !gguf_key(f, "namex"));
}

TEST(gguf_reads_versions_2_and_3)
{
    for (uint32_t version = 2; version <= 3; version++) {
        RefGguf  g;
        GgufFile f;
        whole(&g, version);
        T_STATUS_OK(open_file(&f, &g));
        check_whole(&f);
        gguf_file_close(&f);
        gguf_file_close(&f);
    }
}

TEST(gguf_values_of_the_wrong_kind)
{
    RefGguf  g;
    GgufFile f;
    int64_t  i = 5, n;
    double   x = 6;
    bool     b = true;
    int32_t *ints;
    float   *reals;
    const char *text = "as it was", **texts;
    whole(&g, 3);
    T_STATUS_OK(open_file(&f, &g));
    T_FAILS(gguf_key_int(&i, &f, "eps", 0, 9), ERR_FORMAT,
            "x.gguf: key eps is f32, expected a whole number");
    T_FAILS(gguf_key_int(&i, &f, "shorts", 0, 9), ERR_FORMAT,
            "key shorts is a list of i16, expected a whole number");
    T_FAILS(gguf_key_int(&i, &f, "count", 0, 9), ERR_RANGE,
            "key count is 70000, expected 0 to 9");
    T_FAILS(gguf_key_real(&x, &f, "name"), ERR_FORMAT, "key name is text, expected a number");
    T_FAILS(gguf_key_bool(&b, &f, "count"), ERR_FORMAT, "key count is u32, expected bool");
    T_FAILS(gguf_key_text(&text, &arena, &f, "texts"), ERR_FORMAT,
            "key texts is a list of text, expected a text");
    T_FAILS(gguf_key_texts(&texts, &n, &arena, &f, "name"), ERR_FORMAT,
            "key name is text, expected a list of texts");
    T_FAILS(gguf_key_ints(&ints, &n, &arena, &f, "texts"), ERR_FORMAT,
            "key texts is a list of text, expected a list of whole numbers");
    T_FAILS(gguf_key_reals(&reals, &n, &arena, &f, "count"), ERR_FORMAT,
            "key count is u32, expected a list of numbers");
    T_STATUS_OK(gguf_key_int(&i, &f, "none", 0, 9));
    T_STATUS_OK(gguf_key_real(&x, &f, "none"));
    T_STATUS_OK(gguf_key_bool(&b, &f, "none"));
    T_STATUS_OK(gguf_key_text(&text, &arena, &f, "none"));
    T_STATUS_OK(gguf_key_texts(&texts, &n, &arena, &f, "none"));
    T_OK(i == 5 && x == 6 && b && !texts && n == 0);
    T_TEXT(text, "as it was");
    gguf_file_close(&f);
}

/* --- malformed files, one thing wrong each --- */

static void bad_magic(RefGguf *g)
{
    whole(g, 3);
    g->bytes[3] = 'X';
}

static void bad_version(RefGguf *g)
{
    whole(g, 1);
}

static void big_endian(RefGguf *g)
{
    whole(g, 0x03000000);
}

static void many_tensors(RefGguf *g)
{
    ref_gguf_begin(g, 3, (uint64_t)1 << 60, 0);
}

static void negative_keys(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, UINT64_MAX);
}

static void long_name(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_u64(g, (uint64_t)1 << 60);
    ref_gguf_bytes(g, "abc", 3);
}

static void empty_name(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_u32(g, "", 1);
}

static void zero_in_name(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_u64(g, 3);
    ref_gguf_bytes(g, "a\0b", 3);
}

static void long_text(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_name(g, "general.name");
    ref_gguf_u32(g, TEXT);
    ref_gguf_u64(g, (uint64_t)1 << 60);
}

static void unknown_kind(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_name(g, "k");
    ref_gguf_u32(g, 13);
}

static void list_of_lists(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_list(g, "k", LIST, 1);
}

static void long_list(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_list(g, "k", F64, (uint64_t)1 << 61);
}

static void longish_list(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_list(g, "k", U8, 1000);
}

static void list_of_many_texts(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_list(g, "k", TEXT, UINT64_MAX);
    ref_gguf_name(g, "one");
}

static void odd_bool(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_bool(g, "k", false);
    g->bytes[g->n - 1] = 2;
}

static void key_twice(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 3);
    ref_gguf_key_u32(g, "a.b", 1);
    ref_gguf_key_u32(g, "a", 1);
    ref_gguf_key_u32(g, "a.b", 2);
}

static void odd_alignment(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_u32(g, "general.alignment", 48);
}

static void no_alignment(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_u32(g, "general.alignment", 0);
}

static void alignment_of_text(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_text(g, "general.alignment", "32");
}

static void split_model(RefGguf *g)
{
    ref_gguf_begin(g, 3, 0, 1);
    ref_gguf_key_u32(g, "split.count", 3);
}

static void one_tensor(RefGguf *g, const char *name, uint32_t type, int n_dims,
                       const uint64_t *ne)
{
    ref_gguf_begin(g, 3, 1, 0);
    ref_gguf_tensor(g, name, type, n_dims, ne, 64);
    ref_gguf_data(g);
}

static void tensor_name_64(RefGguf *g)
{
    one_tensor(g, "0123456789012345678901234567890123456789012345678901234567890123", TYPE_F32,
               1, (uint64_t[]){1});
}

static void no_dims(RefGguf *g)
{
    one_tensor(g, "t", TYPE_F32, 0, NULL);
}

static void five_dims(RefGguf *g)
{
    one_tensor(g, "t", TYPE_F32, 5, (uint64_t[]){1, 1, 1, 1, 1});
}

static void zero_dim(RefGguf *g)
{
    one_tensor(g, "t", TYPE_F32, 2, (uint64_t[]){4, 0});
}

static void negative_dim(RefGguf *g)
{
    one_tensor(g, "t", TYPE_F32, 2, (uint64_t[]){(uint64_t)-4, 1});
}

static void dims_overflow(RefGguf *g)
{
    one_tensor(g, "t", TYPE_F32, 3, (uint64_t[]){1u << 31, 1u << 31, 1u << 31});
}

static void bytes_overflow(RefGguf *g)
{
    one_tensor(g, "t", TYPE_F32, 2, (uint64_t[]){1u << 31, (uint64_t)1 << 30});
}

static void old_type(RefGguf *g)
{
    one_tensor(g, "t", 4, 1, (uint64_t[]){32});
}

static void known_type(RefGguf *g)
{
    one_tensor(g, "blk.0.ffn_up.weight", 23, 1, (uint64_t[]){256});
}

static void huge_type(RefGguf *g)
{
    one_tensor(g, "t", UINT32_MAX, 1, (uint64_t[]){256});
}

static void ragged_block(RefGguf *g)
{
    one_tensor(g, "t", TYPE_Q4_K, 2, (uint64_t[]){288, 2});
}

static void hole(RefGguf *g)
{
    ref_gguf_begin(g, 3, 2, 0);
    ref_gguf_tensor(g, "a", TYPE_F32, 1, (uint64_t[]){4}, 33);
    ref_gguf_tensor(g, "b", TYPE_F32, 1, (uint64_t[]){4}, 16);
    ref_gguf_data(g);
}

static void overlap(RefGguf *g)
{
    ref_gguf_begin(g, 3, 2, 0);
    ref_gguf_tensor(g, "a", TYPE_F32, 1, (uint64_t[]){40}, 32);
    ref_gguf_tensor(g, "b", TYPE_F32, 1, (uint64_t[]){4}, 16);
    ref_gguf_data(g);
}

static void late_start(RefGguf *g)
{
    ref_gguf_begin(g, 3, 1, 0);
    g->data = 32;
    ref_gguf_tensor(g, "a", TYPE_F32, 1, (uint64_t[]){4}, 16);
    ref_gguf_data(g);
}

static void past_the_end(RefGguf *g)
{
    ref_gguf_begin(g, 3, 1, 0);
    ref_gguf_tensor(g, "a", TYPE_F32, 1, (uint64_t[]){100}, 32);
    ref_gguf_data(g);
}

static void tensor_twice(RefGguf *g)
{
    ref_gguf_begin(g, 3, 3, 0);
    for (int i = 0; i < 3; i++)
        ref_gguf_tensor(g, i == 1 ? "other" : "same", TYPE_F32, 1, (uint64_t[]){4}, 16);
    ref_gguf_data(g);
}

TEST(gguf_refuses)
{
    static const struct {
        void      (*make)(RefGguf *);
        Status      code;
        const char *words;
    } ROWS[] = {
        {bad_magic, ERR_FORMAT, "x.gguf: not a GGUF file: it begins with 47 47 55 58"},
        {bad_version, ERR_UNSUPPORTED, "GGUF of version 1, expected 2 or 3"},
        {big_endian, ERR_UNSUPPORTED, "GGUF for big-endian machines"},
        {many_tensors, ERR_FORMAT, "number of tensors is 1152921504606846976, expected at most "
                                   "1048576"},
        {negative_keys, ERR_FORMAT, "number of keys is 18446744073709551615, expected at most"},
        {long_name, ERR_FORMAT, "name of key 0 at byte 32: 1152921504606846976 bytes expected, "
                                "but the file has only 3 more"},
        {empty_name, ERR_FORMAT, "name of key 0 is empty"},
        {zero_in_name, ERR_FORMAT, "name of key 0 is not UTF-8 without zero bytes"},
        {long_text, ERR_FORMAT, "key general.name at byte 56: 1152921504606846976 bytes "
                                "expected, but the file has only 0 more"},
        {unknown_kind, ERR_FORMAT, "key k is of kind 13, expected 0 to 12"},
        {list_of_lists, ERR_FORMAT, "key k is a list of lists"},
        {long_list, ERR_FORMAT, "key k has 2305843009213693952 items, more than the file"},
        {longish_list, ERR_FORMAT, "key k at byte 49: 1000 bytes expected"},
        {list_of_many_texts, ERR_FORMAT, "key k at byte 60: 8 bytes expected, but the file has "
                                         "only 0 more"},
        {odd_bool, ERR_FORMAT, "key k is 2, expected true (1) or false (0)"},
        {key_twice, ERR_FORMAT, "key a.b is there twice"},
        {odd_alignment, ERR_FORMAT, "key general.alignment is 48, expected a power of two"},
        {no_alignment, ERR_RANGE, "key general.alignment is 0, expected 1 to"},
        {alignment_of_text, ERR_FORMAT, "key general.alignment is text, expected a whole"},
        {split_model, ERR_UNSUPPORTED, "one of 3 parts of a model: join them first"},
        {tensor_name_64, ERR_FORMAT, "name of tensor 0 has 64 bytes, expected at most 63"},
        {no_dims, ERR_FORMAT, "tensor t has 0 dims, expected 1 to 4"},
        {five_dims, ERR_FORMAT, "tensor t has 5 dims, expected 1 to 4"},
        {zero_dim, ERR_FORMAT, "tensor t: dim 1 is 0, expected 1 to 2^63-1"},
        {negative_dim, ERR_FORMAT, "tensor t: dim 0 is -4, expected 1 to 2^63-1"},
        {dims_overflow, ERR_FORMAT, "tensor t: the product of its dims overflows"},
        {bytes_overflow, ERR_FORMAT, "tensor t: the product of its dims overflows"},
        {old_type, ERR_UNSUPPORTED, "tensor t is of type 4 (unknown), expected F32, F16"},
        {known_type, ERR_UNSUPPORTED, "tensor blk.0.ffn_up.weight is of type 23 (IQ4_XS)"},
        {huge_type, ERR_UNSUPPORTED, "tensor t is of type 4294967295 (unknown)"},
        {ragged_block, ERR_FORMAT, "tensor t has rows of 288 numbers, expected a multiple of "
                                   "256: Q4_K goes in blocks"},
        {hole, ERR_FORMAT, "tensor b begins at byte 64 of the data, expected 32: a hole"},
        {overlap, ERR_FORMAT, "tensor b begins at byte 32 of the data, expected 160: an "
                              "overlap"},
        {late_start, ERR_FORMAT, "tensor a begins at byte 32 of the data, expected 0: a hole"},
        {past_the_end, ERR_FORMAT, "truncated: tensor a ends at byte 464, the file has 96"},
        {tensor_twice, ERR_FORMAT, "tensor same is there twice"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        RefGguf  g;
        GgufFile f;
        ROWS[i].make(&g);
        T_FAILS(open_file(&f, &g), ROWS[i].code, ROWS[i].words);
        T_OK(!f.map.data);
    }
}

TEST(gguf_files_that_are_not_there)
{
    GgufFile f;
    arena_close(&arena);
    T_FAILS(gguf_file_open(&f, &arena, "/nonexistent/x.gguf"), ERR_IO, "/nonexistent/x.gguf: ");
    ref_write(file_path(), "", 0);
    T_FAILS(gguf_file_open(&f, &arena, file_path()), ERR_FORMAT, "empty, expected a GGUF file");
}

/* Every file that ends early is refused, but for the padding of the last tensor. */
TEST(gguf_truncated_anywhere)
{
    RefGguf  g;
    GgufFile f;
    size_t   n;
    whole(&g, 3);
    ref_gguf_save(&g, file_path());
    unsigned char *bytes = ref_read(file_path(), &n);
    for (size_t k = 0; k < n; k++) {
        ref_write(file_path(), bytes, k);
        arena_close(&arena);
        Status s = gguf_file_open(&f, &arena, file_path());
        T_OK((s == OK) == (k >= n - 12));  // 20 bytes padded to 32
        gguf_file_close(&f);
    }
    free(bytes);
}

/* Nothing is read outside the file, whatever a byte says: the sanitizers look on. */
TEST(gguf_flipped_bytes)
{
    RefGguf  g;
    GgufFile f;
    size_t   n;
    int      opened = 0;
    whole(&g, 3);
    size_t head = g.n - g.data;
    ref_gguf_save(&g, file_path());
    unsigned char *bytes = ref_read(file_path(), &n);
    for (size_t k = 0; k < head; k++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[k] ^= (unsigned char)(1 << bit);
            ref_write(file_path(), bytes, n);
            bytes[k] ^= (unsigned char)(1 << bit);
            arena_close(&arena);
            if (gguf_file_open(&f, &arena, file_path()) != OK)
                continue;
            const char **texts;
            int64_t      count;
            (void)!gguf_key_texts(&texts, &count, &arena, &f, "texts");
            for (int64_t i = 0; i < f.n_tensors; i++)
                opened += f.tensors[i].data[f.tensors[i].bytes - 1] != 0;
            gguf_file_close(&f);
        }
    free(bytes);
    T_OK(opened > 0);  // names and values may change
}

TEST(gguf_allocations_that_fail)
{
    RefGguf  g;
    GgufFile f;
    Status   s = ERR_MEMORY;
    int64_t  k = 0;
    whole(&g, 3);
    ref_gguf_save(&g, file_path());
    while (s != OK) {
        arena_close(&arena);
        arena_fail_at(++k);
        s = gguf_file_open(&f, &arena, file_path());
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
    }
    gguf_file_close(&f);
    T_OK(k > 1);
    arena_close(&arena);
}

/* --- which file a path means --- */

TEST(gguf_found_by_path)
{
    const char *found;
    mkdir(ref_path("folder"), 0700);
    arena_close(&arena);
    T_STATUS_OK(gguf_file_find(&found, &arena, ref_path("folder")));
    T_OK(!found);
    ref_write_text(ref_path("folder/one.gguf"), "");
    ref_write_text(ref_path("folder/readme.txt"), "");
    ref_write_text(ref_path("folder/.gguf"), "");
    T_STATUS_OK(gguf_file_find(&found, &arena, ref_path("folder")));
    T_TEXT(found, ref_path("folder/one.gguf"));
    T_STATUS_OK(gguf_file_find(&found, &arena, ref_path("folder/readme.txt")));
    T_TEXT(found, ref_path("folder/readme.txt"));
    ref_write_text(ref_path("folder/TWO.GGUF"), "");
    T_FAILS(gguf_file_find(&found, &arena, ref_path("folder")), ERR_FORMAT,
            "no config.json, but 2 GGUF files: name one of them");
    ref_write_text(ref_path("folder/config.json"), "{}");
    T_STATUS_OK(gguf_file_find(&found, &arena, ref_path("folder")));
    T_OK(!found);
    T_STATUS_OK(gguf_file_find(&found, &arena, "/nonexistent/folder"));
    T_OK(!found);
    T_STATUS_OK(gguf_file_find(&found, &arena, "/nonexistent/x.gguf"));
    T_TEXT(found, "/nonexistent/x.gguf");
    arena_close(&arena);
}
