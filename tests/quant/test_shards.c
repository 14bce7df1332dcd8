/* test_shards.c - tensors cut into files, and the index. */
#include "quant/formats/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/json.h"
#include "analysis/model/checkpoint.h"
#include "tests/check.h"
#include "tests/quant/ref_source.h"

enum { N = 14 };

/* 12 layers of 100 bytes, an embedding of 1000, a norm of 4. */
static void declare(OutTensor *at, Arena *a)
{
    for (int i = 0; i < 12; i++)
        at[i] = (OutTensor){.name = arena_printf(a, "model.layers.%d.w", 11 - i),
                            .view = tensor_1d(DTYPE_U8, NULL, 100)};
    at[12] = (OutTensor){.name = "model.norm", .view = tensor_1d(DTYPE_F32, NULL, 1)};
    at[13] = (OutTensor){.name = "model.embed", .view = tensor_1d(DTYPE_U8, NULL, 1000)};
}

static Status fill(Shards *s)
{
    static unsigned char data[1000];
    TRY(shards_create(s));
    for (int64_t i = 0; i < s->n; i++) {
        memset(data, (int)i + 1, sizeof data);
        TRY(shards_put(s, &s->at[i], 0, data, tensor_bytes(&s->at[i].view)));
    }
    return shards_sync(s);
}

static Status write_all(Shards *s, Arena *a, const char *folder, size_t limit)
{
    OutTensor *at;
    ARENA_NEW(at, a, N);
    declare(at, a);
    mkdir(folder, 0777);
    TRY(shards_layout(s, a, folder, at, N, limit));
    TRY(fill(s));
    return shards_write_index(s, a, folder);
}

TEST(one_file_where_all_fits)
{
    Arena       a = {0};
    Shards      s = {0};
    const char *folder = ref_path("one");
    Checkpoint  c;
    T_STATUS_OK(write_all(&s, &a, folder, 1 << 20));
    T_OK(s.n_files == 1 && s.n_data == 2204 && !shards_missing(&s));
    size_t bytes = shards_bytes(&s), n;
    free(ref_read(ref_path("one/model.safetensors"), &n));
    T_OK(bytes == 2204 && n == bytes + s.files[0].n_header);
    T_OK(access(ref_path("one/model.safetensors.index.json"), F_OK) != 0);
    T_STATUS_OK(checkpoint_open(&c, &a, folder));
    T_OK(c.n == N);
    checkpoint_close(&c);
    shards_close(&s);
    shards_close(&s);  // twice is fine
    arena_close(&a);
}

TEST(files_hold_what_fits_in_the_order_of_layers)
{
    Arena       a = {0};
    Shards      s = {0};
    const char *folder = ref_path("many");
    Checkpoint  c;
    const Json *index;
    enum { LIMIT = 1500 };
    T_STATUS_OK(write_all(&s, &a, folder, LIMIT));
    T_OK(s.n_files > 3);
    T_TEXT(s.files[0].at[0].name, "model.embed");  // alone: the next would not fit
    T_OK(s.files[0].n == 1);
    /* Layer after layer, 10 after 9, over the files. */
    int64_t layer = 0;
    for (int64_t f = 1; f < s.n_files; f++) {
        struct stat st;
        T_OK(stat(s.files[f].path, &st) == 0 && st.st_size <= LIMIT);
        int64_t first = layer;
        for (int64_t i = 0; i < s.files[f].n; i++) {
            long long number;
            if (sscanf(s.files[f].at[i].name, "model.layers.%lld.", &number) != 1)
                continue;
            T_OK(number >= first && number < first + s.files[f].n);
            layer++;
        }
    }
    T_OK(layer == 12);
    T_OK(shards_find(&s, "model.layers.10.w") && !shards_find(&s, "model.layers.12.w"));
    /* All there, where the index says: checkpoint_open looks at each. */
    T_STATUS_OK(checkpoint_open(&c, &a, folder));
    T_OK(c.n == N && c.n_files == s.n_files);
    for (int64_t i = 0; i < N; i++) {
        const OutTensor *t = shards_find(&s, c.tensors[i].name);
        T_OK(t && *(unsigned char *)c.tensors[i].view.data == t - s.at + 1);
    }
    T_STATUS_OK(json_read(&index, &a, ref_path("many/model.safetensors.index.json")));
    T_OK(json_member(json_member(index, "metadata"), "total_size")->integer == 2204);
    T_OK(json_member(index, "weight_map")->n == N);
    checkpoint_close(&c);
    shards_close(&s);
    arena_close(&a);
}

TEST(layers_are_in_order_of_their_numbers)
{
    Arena      a = {0};
    Shards     s = {0};
    OutTensor *at = arena_alloc(&a, N, sizeof *at);
    declare(at, &a);
    T_STATUS_OK(shards_layout(&s, &a, "x", at, N, 0));  // a file each
    T_OK(s.n_files == N);
    T_TEXT(s.files[2].at->name, "model.layers.1.w");
    T_TEXT(s.files[11].at->name, "model.layers.10.w");
    T_TEXT(s.files[11].path, "x/model-00012-of-00014.safetensors");
    arena_close(&a);
}

TEST(what_is_missing_is_named)
{
    Arena      a = {0};
    Shards     s = {0};
    OutTensor *at = arena_alloc(&a, N, sizeof *at);
    declare(at, &a);
    mkdir(ref_path("missing"), 0777);
    T_STATUS_OK(shards_layout(&s, &a, ref_path("missing"), at, N, 1500));
    T_STATUS_OK(fill(&s));
    T_STATUS_OK(shards_put(&s, shards_find(&s, "model.layers.7.w"), 0, "x", 1));
    T_TEXT(shards_missing(&s)->name, "model.layers.7.w");
    shards_close(&s);
    arena_close(&a);
}
