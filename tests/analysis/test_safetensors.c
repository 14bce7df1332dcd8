/* test_safetensors.c - one malformed file for each way to be malformed. */
#include "analysis/model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/analysis/ref_checkpoint.h"
#include "tests/check.h"

static Arena arena;

static Status open_file(SafeTensors *f, const char *header, size_t n_data)
{
    const char *path = ref_path("x.safetensors");
    ref_write_safetensors(path, header, n_data);
    arena_close(&arena);
    return safetensors_open(f, &arena, path);
}

/* Opens bytes as they stand. */
static Status open_bytes(SafeTensors *f, const void *bytes, size_t n)
{
    const char *path = ref_path("x.safetensors");
    ref_write(path, bytes, n);
    arena_close(&arena);
    return safetensors_open(f, &arena, path);
}

#define ENTRY(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

TEST(safetensors_reads_a_table)
{
    SafeTensors f;
    T_STATUS_OK(open_file(&f,
                          " {\"__metadata__\":{\"format\":\"pt\"},"
                          "\"b\":" ENTRY("BF16", "2,3", 4, 16) ","
                          "\"a\":" ENTRY("F32", "1", 0, 4) ","
                          "\"none\":" ENTRY("F32", "0,7", 16, 16) ","
                          "\"scalar\":" ENTRY("U8", "", 16, 17) "} ",
                          17));
    T_OK(f.n == 4);
    T_TEXT(f.tensors[0].name, "a");
    T_TEXT(f.tensors[0].file, "x.safetensors");
    T_OK(f.tensors[0].view.dtype == DTYPE_F32 && f.tensors[0].view.n_dims == 1);
    T_TEXT(f.tensors[1].name, "b");
    T_OK(f.tensors[1].view.shape[0] == 2 && f.tensors[1].view.shape[1] == 3);
    T_OK(*(unsigned char *)f.tensors[1].view.data == 5);
    T_OK(tensor_count(&f.tensors[2].view) == 0);
    T_OK(f.tensors[3].view.n_dims == 0 && *(unsigned char *)f.tensors[3].view.data == 17);
    safetensors_close(&f);
    safetensors_close(&f);
    T_STATUS_OK(open_file(&f, "{\"__metadata__\":null}", 0));
    T_OK(f.n == 0);
    safetensors_close(&f);
}

/* formats.md 1.3, and what is stricter here: duplicates, NaN-proof numbers. */
TEST(safetensors_refuses)
{
    static const struct {
        const char *header;
        size_t      n_data;
        Status      code;
        const char *words;
    } ROWS[] = {
        {"{\"a\":\"\xff\"}", 0, ERR_FORMAT, "not UTF-8"},
        {"{\"a\":", 0, ERR_FORMAT, "header: column 5: not JSON"},
        {"", 0, ERR_FORMAT, "header: column 1: empty"},
        {"[]", 0, ERR_FORMAT, "header is a list, expected an object"},
        {"{} {}", 0, ERR_FORMAT, "something follows"},
        {"{\"a\":7}", 0, ERR_FORMAT, "tensor a is a number, expected an object"},
        {"{\"a\":{}}", 0, ERR_FORMAT, "tensor a: dtype is missing"},
        {"{\"a\":{\"dtype\":3}}", 0, ERR_FORMAT, "tensor a: dtype is a number"},
        {"{\"a\":" ENTRY("F33", "1", 0, 4) "}", 4, ERR_UNSUPPORTED,
         "tensor a: unknown dtype \"F33\""},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, ERR_FORMAT,
         "tensor a: shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", 4, ERR_FORMAT,
         "tensor a: shape is missing or not a list"},
        {"{\"a\":" ENTRY("F32", "1.0", 0, 4) "}", 4, ERR_FORMAT, "shape[0] is not a whole"},
        {"{\"a\":" ENTRY("F32", "2,-1", 0, 4) "}", 4, ERR_FORMAT, "shape[1] is not a whole"},
        {"{\"a\":" ENTRY("F32", "\"1\"", 0, 4) "}", 4, ERR_FORMAT, "shape[0] is not a whole"},
        {"{\"a\":" ENTRY("F32", "18446744073709551616", 0, 4) "}", 4, ERR_FORMAT,
         "shape[0] is not a whole"},
        {"{\"a\":" ENTRY("F32", "1,1,1,1,1,1,1", 0, 4) "}", 4, ERR_UNSUPPORTED,
         "tensor a has 7 dims, expected at most 6"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, ERR_FORMAT,
         "tensor a: data_offsets is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, ERR_FORMAT,
         "data_offsets is missing or not two"},
        {"{\"a\":" ENTRY("F32", "1", -4, 0) "}", 4, ERR_FORMAT, "not two whole numbers"},
        {"{\"a\":" ENTRY("F32", "1", 0, 4.0) "}", 4, ERR_FORMAT, "not two whole numbers"},
        {"{\"__metadata__\":{\"n\":1},\"a\":" ENTRY("F32", "1", 0, 4) "}", 4, ERR_FORMAT,
         "__metadata__ \"n\" is a number, expected a text"},
        {"{\"__metadata__\":[]}", 0, ERR_FORMAT, "__metadata__ is a list, expected an object"},
        {"{\"a\":" ENTRY("F32", "1", 0, 4) ",\"a\":" ENTRY("F32", "1", 4, 8) "}", 8, ERR_FORMAT,
         "key \"a\" appears twice"},
        {"{\"a\":" ENTRY("F32", "1", 4, 8) "}", 8, ERR_FORMAT,
         "tensor a begins at byte 4 of the data, expected 0: a hole"},
        {"{\"a\":" ENTRY("F32", "1", 0, 4) ",\"b\":" ENTRY("F32", "1", 6, 10) "}", 10,
         ERR_FORMAT, "tensor b begins at byte 6 of the data, expected 4: a hole"},
        {"{\"a\":" ENTRY("F32", "2", 0, 8) ",\"b\":" ENTRY("F32", "1", 4, 8) "}", 8, ERR_FORMAT,
         "tensor b begins at byte 4 of the data, expected 8: an overlap"},
        {"{\"a\":" ENTRY("F32", "1", 8, 4) "}", 8, ERR_FORMAT,
         "tensor a ends at byte 4, before it begins at 8"},
        {"{\"a\":" ENTRY("F32", "4294967296,4294967296,0", 0, 0) "}", 0, ERR_FORMAT,
         "tensor a: the product of its shape overflows"},
        {"{\"a\":" ENTRY("U8", "4294967296,2147483648", 0, 0) "}", 0, ERR_FORMAT,
         "tensor a: the product of its shape overflows"},
        {"{\"a\":" ENTRY("F64", "4611686018427387904", 0, 0) "}", 0, ERR_FORMAT,
         "tensor a: its size in bytes overflows"},
        {"{\"a\":" ENTRY("F32", "2", 0, 4) "}", 4, ERR_FORMAT,
         "tensor a has 4 bytes, expected 8 from its shape"},
        {"{\"a\":" ENTRY("F32", "3", 0, 12) "}", 11, ERR_FORMAT,
         "truncated: 11 bytes of data, expected 12"},
        {"{\"a\":" ENTRY("F32", "3", 0, 12) "}", 13, ERR_FORMAT, "something follows the last"},
        {"{}", 1, ERR_FORMAT, "1 bytes of data, expected 0"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        SafeTensors f;
        T_FAILS(open_file(&f, ROWS[i].header, ROWS[i].n_data), ROWS[i].code, ROWS[i].words);
        T_OK(strstr(status_text(), "/x.safetensors"));
        T_OK(f.map.data == NULL);  // nothing left open
    }
}

TEST(safetensors_header_sizes)
{
    SafeTensors f;
    T_FAILS(open_bytes(&f, "", 0), ERR_FORMAT, "0 bytes, expected at least 8");
    T_FAILS(open_bytes(&f, "\2\0\0\0\0\0\0", 7), ERR_FORMAT, "7 bytes, expected at least 8");
    T_FAILS(open_bytes(&f, "\1\xe1\xf5\5\0\0\0\0{}", 10), ERR_FORMAT,
            "header of 100000001 bytes, expected at most 100000000");
    T_FAILS(open_bytes(&f, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), ERR_FORMAT,
            "expected at most");
    T_FAILS(open_bytes(&f, "\3\0\0\0\0\0\0\0{}", 10), ERR_FORMAT,
            "header of 3 bytes, but only 2 follow its size");
    T_FAILS(open_bytes(&f, "\0\xe1\xf5\5\0\0\0\0{}", 10), ERR_FORMAT, "but only 2 follow");
    T_STATUS_OK(open_bytes(&f, "\2\0\0\0\0\0\0\0{}", 10));
    safetensors_close(&f);
}

TEST(safetensors_no_such_file)
{
    SafeTensors f;
    T_FAILS(safetensors_open(&f, &arena, ref_path("none.safetensors")), ERR_IO,
            "none.safetensors: No such file");
    T_FAILS(safetensors_open(&f, &arena, check_tmp()), ERR_IO, "not a regular file");
}

static const char WHOLE[] = "{\"a\":" ENTRY("F32", "2,2", 0, 16) ",\"b\":" ENTRY(
    "BF16", "3", 16, 22) ",\"__metadata__\":{\"format\":\"pt\"}}";

TEST(safetensors_every_allocation_may_fail)
{
    SafeTensors f;
    T_STATUS_OK(open_file(&f, WHOLE, 22));
    safetensors_close(&f);
    int64_t k = 1;
    for (Status s = ERR_MEMORY; s != OK; k++) {
        arena_close(&arena);
        arena_fail_at(k);
        s = safetensors_open(&f, &arena, ref_path("x.safetensors"));
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(s == OK || f.map.data == NULL);
    }
    T_OK(k > 5);
    safetensors_close(&f);
}

/* Changed and cut files: an error or tensors that lie inside the file. */
TEST(safetensors_survives_changed_bytes)
{
    SafeTensors f;
    T_STATUS_OK(open_file(&f, WHOLE, 22));
    safetensors_close(&f);
    size_t         n;
    unsigned char *whole = ref_read(ref_path("x.safetensors"), &n), *part = malloc(n);
    uint64_t       seed = 7;
    int            opened = 0;
    for (int round = 0; round < 800; round++) {
        memcpy(part, whole, n);
        for (int i = 0; i < 1 + round % 2; i++) {
            size_t at = (size_t)((check_uniform(&seed) + 1) / 2 * (float)n);
            part[at < n ? at : 0] = (unsigned char)(check_uniform(&seed) * 128 + 128);
        }
        if (open_bytes(&f, part, round % 8 ? n : n - (size_t)round / 8 % n) != OK)
            continue;
        opened++;
        volatile unsigned sum = 0;
        for (int64_t i = 0; i < f.n; i++)
            for (size_t b = 0; b < tensor_bytes(&f.tensors[i].view); b++)
                sum += ((unsigned char *)f.tensors[i].view.data)[b];
        safetensors_close(&f);
    }
    free(whole);
    free(part);
    arena_close(&arena);
    T_OK(opened > 40);  // flips in the data and in names
}
