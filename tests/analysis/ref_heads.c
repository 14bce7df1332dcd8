/* ref_heads.c - repeats key and value heads in a safetensors file. */
#include "tests/analysis/ref_heads.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/model/safetensors.h"
#include "kernels/arena.h"

typedef struct {
    int64_t n_heads, n_kv_heads;
} Heads;

static const char *file_in(Arena *a, const char *folder, const char *name)
{
    const char *path = arena_printf(a, "%s/%s", folder, name);
    CHECK(path != NULL);
    return path;
}

/* Where the number after "key": begins; it must be there. */
static const char *number_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    CHECK(at && (at = strchr(at, ':')));
    return at + 1 + strspn(at + 1, " ");
}

/* config.json with num_key_value_heads = num_attention_heads. */
static Status write_config(Heads *h, Arena *a, const char *from, const char *to)
{
    FileMap map;
    TRY(filemap_open(&map, file_in(a, from, "config.json")));
    const char *text = arena_text(a, (const char *)map.data, map.size);
    filemap_close(&map);
    CHECK(text != NULL);
    const char *kv = number_of(text, "\"num_key_value_heads\"");
    char       *after;
    h->n_heads = strtoll(number_of(text, "\"num_attention_heads\""), NULL, 10);
    h->n_kv_heads = strtoll(kv, &after, 10);
    CHECK(h->n_kv_heads > 0 && h->n_heads % h->n_kv_heads == 0);
    FILE *out = fopen(file_in(a, to, "config.json"), "w");
    if (!out)
        FAIL(ERR_IO, "%s: %s", to, strerror(errno));
    fprintf(out, "%.*s%lld%s", (int)(kv - text), text, (long long)h->n_heads, after);
    if (fclose(out) != 0)
        FAIL(ERR_IO, "%s: %s", to, strerror(errno));
    return OK;
}

/* How often each head of this tensor is written. */
static int64_t repeats(const Heads *h, const ModelTensor *t)
{
    bool grouped = strstr(t->name, "k_proj") || strstr(t->name, "v_proj");
    return grouped ? h->n_heads / h->n_kv_heads : 1;
}

static const char *header(Arena *a, const SafeTensors *f, const Heads *h)
{
    const char *text = "{";
    size_t      at = 0;
    for (int64_t i = 0; i < f->n && text; i++) {
        Tensor  t = f->tensors[i].view;
        int64_t times = repeats(h, &f->tensors[i]);
        size_t  end = at + tensor_bytes(&t) * (size_t)times;
        char    shape[128];
        t.shape[0] *= times;
        text = arena_printf(a, "%s%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":"
                            "[%zu,%zu]}", text, i ? "," : "", f->tensors[i].name,
                            dtype_name(t.dtype), tensor_shape_text(&t, shape), at, end);
        at = end;
    }
    CHECK(text != NULL);
    return arena_printf(a, "%s}", text);
}

static void write_data(FILE *out, const SafeTensors *f, const Heads *h)
{
    for (int64_t i = 0; i < f->n; i++) {
        const Tensor *t = &f->tensors[i].view;
        int64_t times = repeats(h, &f->tensors[i]);
        int64_t n = times == 1 ? 1 : h->n_kv_heads;
        size_t  size = tensor_bytes(t) / (size_t)n;
        for (int64_t head = 0; head < n; head++)
            for (int64_t k = 0; k < times; k++)
                fwrite((const char *)t->data + (size_t)head * size, 1, size, out);
    }
}

static Status write_tensors(const Heads *h, Arena *a, const char *from, const char *to)
{
    SafeTensors f = {0};
    TRY(safetensors_open(&f, a, file_in(a, from, "model.safetensors")));
    FILE *out = fopen(file_in(a, to, "model.safetensors"), "wb");
    if (!out) {
        safetensors_close(&f);
        FAIL(ERR_IO, "%s: %s", to, strerror(errno));
    }
    const char *text = header(a, &f, h);
    CHECK(text != NULL);
    uint64_t size = strlen(text);
    fwrite(&size, sizeof size, 1, out);
    fputs(text, out);
    write_data(out, &f, h);
    safetensors_close(&f);
    bool bad = ferror(out);
    if (fclose(out) != 0 || bad)
        FAIL(ERR_IO, "%s: could not be written", to);
    return OK;
}

Status heads_write_out(const char *from, const char *to)
{
    Arena a = {0};
    Heads h = {0};
    Status s = OK;
    if (mkdir(to, 0777) != 0)
        FAIL(ERR_IO, "%s: %s", to, strerror(errno));
    GUARD(write_config(&h, &a, from, to));
    GUARD(write_tensors(&h, &a, from, to));
out:
    arena_close(&a);
    return s;
}
