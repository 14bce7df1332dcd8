/* test_tensorfile.c - safetensors files filled in any order. */
#include "quant/formats/tensorfile.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "analysis/model/safetensors.h"
#include "tests/check.h"
#include "tests/quant/ref_source.h"

/* What safetensors 0.7 (Python, save_file) writes of the same tensors. */
static const char GOLDEN[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"shape\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[16,28]},"
    "\"z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[28,32]},"
    "\"words\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":[32,56]},"
    "\"b10\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[56,58]},"
    "\"b9\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[58,62]},"
    "\"h\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[62,68]},"
    "\"codes\":{\"dtype\":\"I8\",\"shape\":[1,5],\"data_offsets\":[68,73]}}";

enum { N = 8 };

static void declare(OutTensor *t)
{
    const OutTensor ALL[N] = {
        {.name = "codes", .view = tensor_2d(DTYPE_I8, NULL, 1, 5)},
        {.name = "b9", .view = tensor_1d(DTYPE_BF16, NULL, 2)},
        {.name = "b10", .view = tensor_1d(DTYPE_BF16, NULL, 1)},
        {.name = "z", .view = {.dtype = DTYPE_F32}},
        {.name = "words", .view = tensor_2d(DTYPE_I32, NULL, 2, 3)},
        {.name = "a", .view = tensor_1d(DTYPE_F32, NULL, 3)},
        {.name = "shape", .view = tensor_1d(DTYPE_I64, NULL, 2)},
        {.name = "h", .view = tensor_1d(DTYPE_F16, NULL, 3)},
    };
    memcpy(t, ALL, sizeof ALL);
}

/* Byte i of the data is i + 1. */
static Status put_all(TensorFile *f)
{
    unsigned char data[128];
    for (int i = 0; i < 128; i++)
        data[i] = (unsigned char)(i + 1);
    for (int64_t i = f->n - 1; i >= 0; i--) {
        OutTensor *t = &f->at[i];
        size_t     n = tensor_bytes(&t->view), half = n / 2;
        TRY(tensorfile_put(f, t, 0, data + t->begin, half));
        TRY(tensorfile_put(f, t, half, data + t->begin + half, n - half));
    }
    return OK;
}

static Status write_golden(TensorFile *f, Arena *a, OutTensor *at)
{
    declare(at);
    TRY(tensorfile_layout(f, a, ref_path("golden"), at, N));
    TRY(tensorfile_create(f));
    TRY(put_all(f));
    return tensorfile_sync(f);
}

TEST(bytes_are_those_of_the_safetensors_package)
{
    Arena      a = {0};
    TensorFile f;
    OutTensor  at[N];
    size_t     n, n_json = strlen(GOLDEN), padded = (n_json + 7) / 8 * 8;
    T_STATUS_OK(write_golden(&f, &a, at));
    tensorfile_close(&f);
    unsigned char *file = ref_read(ref_path("golden"), &n);
    T_OK(n == 8 + padded + 73 && f.n_header == 8 + padded && f.n_data == 73);
    T_OK(file[0] == (padded & 255) && file[1] == padded >> 8 && !file[2] && !file[7]);
    T_OK(memcmp(file + 8, GOLDEN, n_json) == 0);
    for (size_t i = n_json; i < padded; i++)
        T_OK(file[8 + i] == ' ');
    for (size_t i = 0; i < 73; i++)
        T_OK(file[8 + padded + i] == i + 1);
    free(file);
    arena_close(&a);
}

TEST(our_reader_takes_it)
{
    Arena       a = {0};
    TensorFile  f;
    OutTensor   at[N];
    SafeTensors back;
    T_STATUS_OK(write_golden(&f, &a, at));
    tensorfile_close(&f);
    tensorfile_close(&f);  // twice is fine
    T_STATUS_OK(safetensors_open(&back, &a, ref_path("golden")));
    T_OK(back.n == N);
    T_TEXT(back.tensors[0].name, "a");
    T_OK(*(unsigned char *)back.tensors[0].view.data == 17);
    safetensors_close(&back);
    arena_close(&a);
}

TEST(a_tensor_is_whole_when_all_came)
{
    Arena      a = {0};
    TensorFile f;
    OutTensor  at[N];
    char       data[24] = "0123456789abcdefghijklm";
    declare(at);
    T_STATUS_OK(tensorfile_layout(&f, &a, ref_path("whole"), at, N));
    T_STATUS_OK(tensorfile_create(&f));
    OutTensor *words = &at[3];
    T_TEXT(words->name, "words");
    T_OK(!tensorfile_is_whole(words));
    T_STATUS_OK(tensorfile_put(&f, words, 0, data, 23));
    T_OK(!tensorfile_is_whole(words));
    T_STATUS_OK(tensorfile_put(&f, words, 23, data + 23, 1));
    T_OK(tensorfile_is_whole(words) && !tensorfile_is_whole(&at[2]));
    T_STATUS_OK(tensorfile_put(&f, words, 0, data, 8));  // begins anew
    T_OK(!tensorfile_is_whole(words));
    tensorfile_close(&f);
    arena_close(&a);
}

TEST(what_was_written_is_opened_again_and_nothing_else)
{
    Arena      a = {0};
    TensorFile f, again;
    OutTensor  at[N], other[N];
    T_STATUS_OK(write_golden(&f, &a, at));
    tensorfile_close(&f);
    T_STATUS_OK(tensorfile_reopen(&f));
    T_STATUS_OK(tensorfile_put(&f, &at[7], 0, "vwxyz", 5));
    tensorfile_close(&f);
    size_t         n;
    unsigned char *file = ref_read(ref_path("golden"), &n);
    T_OK(memcmp(file + n - 5, "vwxyz", 5) == 0);
    declare(other);
    other[5].name = "A";
    T_STATUS_OK(tensorfile_layout(&again, &a, ref_path("golden"), other, N));
    T_FAILS(tensorfile_reopen(&again), ERR_FORMAT, "golden: is not the file");
    ref_write(ref_path("golden"), file, n - 1);
    T_FAILS(tensorfile_reopen(&f), ERR_FORMAT, "golden: is not the file");
    ref_write(ref_path("golden"), "", 0);
    T_FAILS(tensorfile_reopen(&f), ERR_FORMAT, "golden: is not the file");
    unlink(ref_path("golden"));
    T_FAILS(tensorfile_reopen(&f), ERR_IO, "golden");
    free(file);
    arena_close(&a);
}

TEST(names_are_escaped)
{
    Arena       a = {0};
    TensorFile  f;
    OutTensor   at[2] = {{.name = "q\"\\\n", .view = tensor_1d(DTYPE_U8, NULL, 1)},
                         {.name = "\xc3\xa9", .view = tensor_1d(DTYPE_U8, NULL, 0)}};
    SafeTensors back;
    T_STATUS_OK(tensorfile_layout(&f, &a, ref_path("names"), at, 2));
    T_STATUS_OK(tensorfile_create(&f));
    tensorfile_close(&f);
    T_STATUS_OK(safetensors_open(&back, &a, ref_path("names")));
    T_TEXT(back.tensors[0].name, "q\"\\\n");
    T_TEXT(back.tensors[1].name, "\xc3\xa9");
    safetensors_close(&back);
    /* Room is an upper bound of what a tensor takes. */
    T_OK(f.n_header <= 64 + tensorfile_room(&at[0]) - 1 + tensorfile_room(&at[1]));
    arena_close(&a);
}

TEST(no_room_is_told_at_once)
{
    Arena         a = {0};
    TensorFile    f;
    OutTensor     at[1] = {{.name = "w", .view = tensor_2d(DTYPE_F32, NULL, 500, 500)}};
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    T_OK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = (struct rlimit){900000, old.rlim_max};
    T_STATUS_OK(tensorfile_layout(&f, &a, ref_path("large"), at, 1));
    T_OK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    Status s = tensorfile_create(&f);
    setrlimit(RLIMIT_FSIZE, &old);
    T_OK(s == ERR_IO && strstr(status_text(), "large: no room for its 1000"));
    tensorfile_close(&f);
    T_STATUS_OK(tensorfile_layout(&f, &a, ref_path("none/such"), at, 1));
    T_FAILS(tensorfile_create(&f), ERR_IO, "none/such: cannot be written: No such file");
    arena_close(&a);
}

TEST(a_layout_without_memory_is_an_error)
{
    Status s = ERR_MEMORY;
    for (int64_t k = 1; s != OK; k++) {
        Arena      a = {0};
        TensorFile f;
        OutTensor  at[N];
        declare(at);
        arena_fail_at(k);
        s = tensorfile_layout(&f, &a, "x", at, N);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        tensorfile_close(&f);
        arena_close(&a);
    }
}
