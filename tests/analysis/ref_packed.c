/* ref_packed.c - see ref_packed.h. */
#include "tests/analysis/ref_packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/model/safetensors.h"
#include "tests/analysis/ref_checkpoint.h"
#include "tests/check.h"

/* A file as it grows. */
typedef struct {
    char          *header;
    unsigned char *data;
    size_t         n_header, n_data;
} Out;

static void put_tensor(Out *o, const char *name, const char *dtype, const char *shape,
                       const unsigned char *bytes, size_t n, size_t wanted)
{
    o->n_header += (size_t)sprintf(
        o->header + o->n_header,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
        o->n_header > 1 ? "," : "", name, dtype, shape, o->n_data, o->n_data + wanted);
    memset(o->data + o->n_data, 0, wanted);
    if (n)
        memcpy(o->data + o->n_data, bytes, n < wanted ? n : wanted);
    o->n_data += wanted;
}

static size_t shape_bytes(const char *dtype, const char *shape)
{
    Dtype  d = DTYPE_F32;
    size_t n = 1;
    if (dtype_parse(&d, dtype) != OK)
        abort();
    for (const char *p = shape; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        n *= (size_t)atoll(p);
    return n * dtype_size(d);
}

static void fill(unsigned char *bytes, size_t n, const char *hex)
{
    size_t period = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        if (sscanf(hex + 2 * (i % period), "%2x", &byte) != 1)
            abort();
        bytes[i] = (unsigned char)byte;
    }
}

static void put_edited(Out *o, const ModelTensor *t, const PackedEdit *e)
{
    PackedChange change = e->tensor && strcmp(t->name, e->tensor) == 0 ? e->change : KEEP_ALL;
    const char  *name = t->name, *dtype = dtype_name(t->view.dtype);
    char         shape[128];
    size_t       n = tensor_bytes(&t->view), begin = o->n_data;
    tensor_shape_text(&t->view, shape);
    memmove(shape, shape + 1, strlen(shape));
    shape[strlen(shape) - 1] = 0;
    if (change == DROP)
        return;
    if (change == RENAME)
        name = e->text;
    if (change == DTYPE)
        dtype = e->text;
    if (change == SHAPE)
        snprintf(shape, sizeof shape, "%s", e->text);
    put_tensor(o, name, dtype, shape, t->view.data, n, shape_bytes(dtype, shape));
    if (change == FILL)
        fill(o->data + begin, n, e->text);
}

static void write_out(const char *path, const Out *o)
{
    unsigned char *all = malloc(8 + o->n_header + o->n_data);
    for (int i = 0; i < 8; i++)
        all[i] = (unsigned char)(o->n_header >> (8 * i));
    memcpy(all + 8, o->header, o->n_header);
    memcpy(all + 8 + o->n_header, o->data, o->n_data);
    ref_write(path, all, 8 + o->n_header + o->n_data);
    free(all);
}

static void write_config(const char *folder, const char *name, const PackedEdit *e)
{
    char           path[600], golden[128];
    size_t         n;
    snprintf(golden, sizeof golden, "golden/packed/%s/config.json", name);
    unsigned char *text = ref_read(check_path(golden), &n);
    text[n] = 0;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (!e->from) {
        ref_write(path, text, n);
    } else {
        const char *at = strstr((char *)text, e->from);
        if (!at) {
            fprintf(stderr, "ref_packed: \"%s\" is not in %s\n", e->from, golden);
            exit(1);
        }
        char  *whole = malloc(n + strlen(e->to) + 1);
        size_t end = (size_t)sprintf(whole, "%.*s%s%s", (int)(at - (char *)text), text, e->to,
                                     at + strlen(e->from));
        ref_write(path, whole, end);
        free(whole);
    }
    free(text);
}

void ref_packed_write(const char *folder, const char *name, const PackedEdit *e)
{
    Arena       arena = {0};
    SafeTensors f;
    char        path[600], golden[128];
    snprintf(golden, sizeof golden, "golden/packed/%s/model.safetensors", name);
    if (safetensors_open(&f, &arena, check_path(golden)) != OK) {
        fprintf(stderr, "%s\n", status_text());
        exit(1);
    }
    Out o = {malloc((size_t)(f.n + 2) * 256), malloc(2 * f.map.size + 65536), 1, 0};
    o.header[0] = '{';
    for (int64_t i = 0; i < f.n; i++)
        put_edited(&o, &f.tensors[i], e);
    if (e->change == ADD)
        put_tensor(&o, e->text, "F32", "1", NULL, 0, 4);
    o.header[o.n_header++] = '}';
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_out(path, &o);
    write_config(folder, name, e);
    free(o.header);
    free(o.data);
    safetensors_close(&f);
    arena_close(&arena);
}
