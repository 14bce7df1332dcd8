/* test_checkpoint.c - folders with one file, with shards, with something missing. */
#include "analysis/model/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/analysis/ref_checkpoint.h"
#include "tests/check.h"

#define INDEX "model.safetensors.index.json"
#define A4 "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"
#define B4 "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"

static Arena arena;

/* A fresh folder with shards one (tensor a) and two (tensor b), and that index. */
static const char *sharded(const char *index)
{
    static int  number;
    const char *folder = ref_path("shards%d", number++);
    char        path[600];
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/one.safetensors", folder);
    ref_write_safetensors(path, A4, 4);
    snprintf(path, sizeof path, "%s/two.safetensors", folder);
    ref_write_safetensors(path, B4, 4);
    snprintf(path, sizeof path, "%s/" INDEX, folder);
    ref_write_text(path, index);
    return folder;
}

static Status open_index(Checkpoint *c, const char *index)
{
    arena_close(&arena);
    return checkpoint_open(c, &arena, sharded(index));
}

TEST(checkpoint_of_shards)
{
    Checkpoint c;
    T_STATUS_OK(open_index(&c, "{\"metadata\":{\"total_size\":8},\"weight_map\":"
                               "{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}}"));
    T_OK(c.n_files == 2 && c.n == 2);
    T_TEXT(c.tensors[0].name, "a");
    T_TEXT(c.tensors[0].file, "one.safetensors");
    T_TEXT(checkpoint_find(&c, "b")->file, "two.safetensors");
    T_OK(!checkpoint_find(&c, "c"));
    checkpoint_close(&c);
    checkpoint_close(&c);
    T_OK(!checkpoint_find(&c, "b"));
}

TEST(checkpoint_of_one_file)
{
    const char *folder = ref_path("single");
    Checkpoint  c;
    mkdir(folder, 0777);
    T_FAILS(checkpoint_open(&c, &arena, folder), ERR_IO,
            "neither model.safetensors nor " INDEX " is there");
    ref_write_safetensors(ref_path("single/model.safetensors"), A4, 4);
    T_STATUS_OK(checkpoint_open(&c, &arena, folder));
    T_OK(c.n_files == 1 && c.n == 1);
    checkpoint_close(&c);
}

TEST(checkpoint_index_comes_first)
{
    const char *folder = sharded("{\"weight_map\":{\"b\":\"two.safetensors\"}}");
    char        path[600];
    Checkpoint  c;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ref_write_safetensors(path, A4, 4);
    T_STATUS_OK(checkpoint_open(&c, &arena, folder));
    T_OK(c.n_files == 1 && checkpoint_find(&c, "b") && !checkpoint_find(&c, "a"));
    checkpoint_close(&c);
}

TEST(checkpoint_refuses)
{
    static const struct {
        const char *index;
        Status      code;
        const char *words;
    } ROWS[] = {
        {"", ERR_FORMAT, INDEX ": column 1: empty"},
        {"{\"weight_map\":", ERR_FORMAT, INDEX ": column 14: not JSON"},
        {"[]", ERR_FORMAT, INDEX ": weight_map is missing"},
        {"{}", ERR_FORMAT, INDEX ": weight_map is missing"},
        {"{\"weight_map\":{}}", ERR_FORMAT, "weight_map is missing, empty"},
        {"{\"weight_map\":[\"one.safetensors\"]}", ERR_FORMAT, "or not an object"},
        {"{\"weight_map\":{\"a\":1}}", ERR_FORMAT, "weight_map a is a number, expected a file"},
        {"{\"weight_map\":{\"a\":\"../one.safetensors\"}}", ERR_FORMAT,
         "weight_map a is \"../one.safetensors\", expected a file name without a path"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", ERR_FORMAT, "without a path"},
        {"{\"weight_map\":{\"a\":\"x\\\\one.safetensors\"}}", ERR_FORMAT, "without a path"},
        {"{\"weight_map\":{\"a\":\"..\"}}", ERR_FORMAT, "without a path"},
        {"{\"weight_map\":{\"a\":\"\"}}", ERR_FORMAT, "without a path"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"three.safetensors\"}}", ERR_IO,
         "/three.safetensors: No such file"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}", ERR_FORMAT,
         "tensor c is not in two.safetensors, where the index puts it"},
        {"{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}", ERR_FORMAT,
         "tensor a is not in two.safetensors"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}", ERR_FORMAT,
         "key \"a\" appears twice"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Checkpoint c;
        T_FAILS(open_index(&c, ROWS[i].index), ROWS[i].code, ROWS[i].words);
        T_OK(c.n_files == 0 && !c.files);
    }
}

TEST(checkpoint_same_tensor_in_two_shards)
{
    const char *folder = sharded("{\"weight_map\":{\"a\":\"one.safetensors\","
                                 "\"b\":\"two.safetensors\"}}");
    char        path[600];
    Checkpoint  c;
    snprintf(path, sizeof path, "%s/two.safetensors", folder);
    ref_write_safetensors(path,
                          "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                          8);
    T_FAILS(checkpoint_open(&c, &arena, folder), ERR_FORMAT, "tensor a is in ");
}

TEST(checkpoint_bad_shard_is_named)
{
    const char *folder = sharded("{\"weight_map\":{\"a\":\"one.safetensors\","
                                 "\"b\":\"two.safetensors\"}}");
    char        path[600];
    Checkpoint  c;
    snprintf(path, sizeof path, "%s/two.safetensors", folder);
    ref_write_safetensors(path, B4, 3);
    T_FAILS(checkpoint_open(&c, &arena, folder), ERR_FORMAT, "/two.safetensors: truncated");
}

TEST(checkpoint_every_allocation_may_fail)
{
    const char *folder = sharded("{\"weight_map\":{\"a\":\"one.safetensors\","
                                 "\"b\":\"two.safetensors\"}}");
    Checkpoint  c;
    int64_t     k = 1;
    for (Status s = ERR_MEMORY; s != OK; k++) {
        arena_close(&arena);
        arena_fail_at(k);
        s = checkpoint_open(&c, &arena, folder);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && c.n_files == 0));
    }
    T_OK(k > 10);
    checkpoint_close(&c);
    arena_close(&arena);
}
