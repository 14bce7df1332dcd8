/* gguf_file.c - header, keys, tensor table, outline of the data. */
#include "analysis/model/gguf_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/json.h"
#include "kernels/size.h"

enum { DEFAULT_ALIGNMENT = 32 };

/* Where in the file we are; never past its end. */
typedef struct {
    const char          *path;
    const unsigned char *begin, *at, *end;
    char                 what[128];  // being read, for messages: "key general.name"
} Cursor;

/* --- numbers and names --- */

static Status take(const unsigned char **out, Cursor *c, uint64_t n)
{
    uint64_t left = (uint64_t)(c->end - c->at);
    if (n > left)
        FAIL(ERR_FORMAT, "%s: %s at byte %zu: %llu bytes expected, but the file has only %llu "
             "more", c->path, c->what, (size_t)(c->at - c->begin), (unsigned long long)n,
             (unsigned long long)left);
    *out = c->at;
    c->at += n;
    return OK;
}

static Status take_u32(uint32_t *out, Cursor *c)
{
    const unsigned char *p = NULL;
    TRY(take(&p, c, sizeof *out));
    memcpy(out, p, sizeof *out);
    return OK;
}

static Status take_u64(uint64_t *out, Cursor *c)
{
    const unsigned char *p = NULL;
    TRY(take(&p, c, sizeof *out));
    memcpy(out, p, sizeof *out);
    return OK;
}

static Status take_name(const char **out, Arena *a, Cursor *c)
{
    const unsigned char *p = NULL;
    uint64_t             n = 0;
    TRY(take_u64(&n, c));
    TRY(take(&p, c, n));
    if (n == 0)
        FAIL(ERR_FORMAT, "%s: %s is empty", c->path, c->what);
    if (memchr(p, 0, n) || json_utf8_prefix(p, n) < n)
        FAIL(ERR_FORMAT, "%s: %s is not UTF-8 without zero bytes", c->path, c->what);
    *out = arena_text(a, (const char *)p, n);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: a name of %llu bytes", (unsigned long long)n);
    return OK;
}

/* --- keys --- */

/* Bytes of an item; 0 for texts and lists. */
static size_t value_size(GgufValue kind)
{
    static const unsigned char SIZES[N_GGUF_VALUES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return SIZES[kind];
}

static Status take_kind(GgufValue *out, Cursor *c)
{
    uint32_t kind = 0;
    TRY(take_u32(&kind, c));
    if (kind >= N_GGUF_VALUES)
        FAIL(ERR_FORMAT, "%s: %s is of kind %u, expected 0 to %d", c->path, c->what, kind,
             N_GGUF_VALUES - 1);
    *out = (GgufValue)kind;
    return OK;
}

static Status take_texts(Cursor *c, uint64_t n)
{
    const unsigned char *p;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t length = 0;
        TRY(take_u64(&length, c));
        TRY(take(&p, c, length));
    }
    return OK;
}

static Status take_items(GgufKey *k, Cursor *c, uint64_t n)
{
    size_t bytes;
    if (k->kind == GGUF_VALUE_LIST)
        FAIL(ERR_FORMAT, "%s: %s is a list of lists", c->path, c->what);
    k->data = c->at;
    k->n = (int64_t)n;
    if (k->kind == GGUF_VALUE_TEXT)
        return take_texts(c, n);
    if (n > INT64_MAX || !size_mul((size_t)n, value_size(k->kind), &bytes))
        FAIL(ERR_FORMAT, "%s: %s has %llu items, more than the file", c->path, c->what,
             (unsigned long long)n);
    TRY(take(&k->data, c, bytes));
    for (size_t i = 0; k->kind == GGUF_VALUE_BOOL && i < bytes; i++)
        if (k->data[i] > 1)
            FAIL(ERR_FORMAT, "%s: %s is %d, expected true (1) or false (0)", c->path, c->what,
                 k->data[i]);
    return OK;
}

static Status take_key(GgufKey *k, Arena *a, Cursor *c, int64_t number)
{
    uint64_t n = 1;
    snprintf(c->what, sizeof c->what, "name of key %lld", (long long)number);
    TRY(take_name(&k->name, a, c));
    snprintf(c->what, sizeof c->what, "key %s", k->name);
    TRY(take_kind(&k->kind, c));
    k->list = k->kind == GGUF_VALUE_LIST;
    if (k->list) {
        TRY(take_kind(&k->kind, c));
        TRY(take_u64(&n, c));
    }
    return take_items(k, c, n);
}

static int by_name(const void *x, const void *y)
{
    return strcmp(((const GgufKey *)x)->name, ((const GgufKey *)y)->name);
}

static Status take_keys(GgufFile *f, Arena *a, Cursor *c)
{
    ARENA_NEW(f->keys, a, f->n_keys);
    for (int64_t i = 0; i < f->n_keys; i++)
        TRY(take_key(&f->keys[i], a, c, i));
    qsort(f->keys, (size_t)f->n_keys, sizeof *f->keys, by_name);
    for (int64_t i = 1; i < f->n_keys; i++)
        if (strcmp(f->keys[i].name, f->keys[i - 1].name) == 0)
            FAIL(ERR_FORMAT, "%s: key %s is there twice", f->path, f->keys[i].name);
    return OK;
}

/* --- tensors --- */

/* Types that ggml has, to be named where they are not ours. */
static const char *type_name(uint32_t type)
{
    static const struct {
        uint32_t    id;
        const char *name;
    } NAMES[] = {
        {9, "Q8_1"},     {10, "Q2_K"},    {11, "Q3_K"},   {15, "Q8_K"},   {16, "IQ2_XXS"},
        {17, "IQ2_XS"},  {18, "IQ3_XXS"}, {19, "IQ1_S"},  {20, "IQ4_NL"}, {21, "IQ3_S"},
        {22, "IQ2_S"},   {23, "IQ4_XS"},  {29, "IQ1_M"},  {34, "TQ1_0"},  {35, "TQ2_0"},
        {39, "MXFP4"},   {40, "NVFP4"},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].id == type)
            return NAMES[i].name;
    return "unknown";
}

static bool plain_type(Dtype *out, uint32_t type)
{
    static const struct {
        uint32_t id;
        Dtype    dtype;
    } PLAIN[] = {{0, DTYPE_F32},  {1, DTYPE_F16},  {30, DTYPE_BF16}, {24, DTYPE_I8},
                 {25, DTYPE_I16}, {26, DTYPE_I32}, {27, DTYPE_I64},  {28, DTYPE_F64}};
    for (size_t i = 0; i < sizeof PLAIN / sizeof *PLAIN; i++)
        if (PLAIN[i].id == type) {
            *out = PLAIN[i].dtype;
            return true;
        }
    return false;
}

static Status take_type(GgufTensor *t, Cursor *c)
{
    uint32_t type = 0;
    TRY(take_u32(&type, c));
    if (plain_type(&t->dtype, type))
        return OK;
    t->is_block = true;
    if (type > INT32_MAX || block_by_id(&t->block, (int)type) != OK)
        FAIL(ERR_UNSUPPORTED, "%s: %s is of type %u (%s), expected F32, F16, BF16, Q4_0, Q4_1, "
             "Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K", c->path, c->what, type, type_name(type));
    return OK;
}

static Status take_dims(GgufTensor *t, Cursor *c)
{
    uint32_t n = 0;
    TRY(take_u32(&n, c));
    if (n < 1 || n > GGUF_MAX_DIMS)
        FAIL(ERR_FORMAT, "%s: %s has %u dims, expected 1 to %d", c->path, c->what, n,
             GGUF_MAX_DIMS);
    t->n_dims = (int)n;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t ne = 0;
        TRY(take_u64(&ne, c));
        if (ne < 1 || ne > INT64_MAX)
            FAIL(ERR_FORMAT, "%s: %s: dim %d is %lld, expected 1 to 2^63-1", c->path, c->what,
                 i, (long long)ne);
        t->ne[i] = (int64_t)ne;
    }
    return OK;
}

/* Bytes it takes, from its type and dims. */
static Status measure(GgufTensor *t, const Cursor *c)
{
    const BlockInfo *info = t->is_block ? block_info(t->block) : NULL;
    int64_t          items = info ? info->items : 1;
    size_t           n = (size_t)(t->ne[0] / items);
    bool             fits = size_mul(n, info ? (size_t)info->bytes : dtype_size(t->dtype), &n);
    if (t->ne[0] % items)
        FAIL(ERR_FORMAT, "%s: %s has rows of %lld numbers, expected a multiple of %lld: %s "
             "goes in blocks", c->path, c->what, (long long)t->ne[0], (long long)items,
             info->name);
    for (int i = 1; i < t->n_dims && fits; i++)
        fits = size_mul(n, (size_t)t->ne[i], &n);
    if (!fits || n > INT64_MAX)
        FAIL(ERR_FORMAT, "%s: %s: the product of its dims overflows", c->path, c->what);
    t->bytes = n;
    return OK;
}

static size_t pad(size_t n, size_t alignment)
{
    return (n + alignment - 1) / alignment * alignment;
}

/* *data: where the last tensor ended, and this one has to begin. */
static Status take_tensor(GgufTensor *t, Arena *a, Cursor *c, size_t alignment, size_t *data,
                          int64_t number)
{
    uint64_t offset = 0;
    snprintf(c->what, sizeof c->what, "name of tensor %lld", (long long)number);
    TRY(take_name(&t->name, a, c));
    if (strlen(t->name) > GGUF_MAX_NAME)
        FAIL(ERR_FORMAT, "%s: %s has %zu bytes, expected at most %d", c->path, c->what,
             strlen(t->name), GGUF_MAX_NAME);
    snprintf(c->what, sizeof c->what, "tensor %s", t->name);
    TRY(take_dims(t, c));
    TRY(take_type(t, c));
    TRY(measure(t, c));
    TRY(take_u64(&offset, c));
    if (offset != *data)
        FAIL(ERR_FORMAT, "%s: %s begins at byte %llu of the data, expected %zu: %s", c->path,
             c->what, (unsigned long long)offset, *data,
             offset > *data ? "a hole" : "an overlap");
    if (!size_add(*data, t->bytes, data) || *data > INT64_MAX)
        FAIL(ERR_FORMAT, "%s: %s: the sum of all sizes overflows", c->path, c->what);
    *data = pad(*data, alignment);
    return OK;
}

static int by_tensor_name(const void *x, const void *y)
{
    return strcmp((*(const GgufTensor *const *)x)->name, (*(const GgufTensor *const *)y)->name);
}

static Status check_names(const GgufFile *f, Arena *a)
{
    const GgufTensor **sorted;
    ARENA_NEW(sorted, a, f->n_tensors);
    for (int64_t i = 0; i < f->n_tensors; i++)
        sorted[i] = &f->tensors[i];
    qsort(sorted, (size_t)f->n_tensors, sizeof *sorted, by_tensor_name);
    for (int64_t i = 1; i < f->n_tensors; i++)
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) == 0)
            FAIL(ERR_FORMAT, "%s: tensor %s is there twice", f->path, sorted[i]->name);
    return OK;
}

static Status take_tensors(GgufFile *f, Arena *a, Cursor *c, size_t alignment)
{
    size_t end = 0;
    ARENA_NEW(f->tensors, a, f->n_tensors);
    for (int64_t i = 0; i < f->n_tensors; i++)
        TRY(take_tensor(&f->tensors[i], a, c, alignment, &end, i));
    TRY(check_names(f, a));
    size_t at = pad((size_t)(c->at - c->begin), alignment);
    for (int64_t i = 0; i < f->n_tensors; i++) {
        GgufTensor *t = &f->tensors[i];
        if (at > f->map.size || t->bytes > f->map.size - at)
            FAIL(ERR_FORMAT, "%s: truncated: tensor %s ends at byte %zu, the file has %zu",
                 f->path, t->name, at + t->bytes, f->map.size);
        t->data = c->begin + at;
        at += pad(t->bytes, alignment);
    }
    return OK;
}

/* --- all of it --- */

static Status take_count(int64_t *out, Cursor *c, const char *what)
{
    uint64_t n = 0;
    snprintf(c->what, sizeof c->what, "number of %s", what);
    TRY(take_u64(&n, c));
    if (n > GGUF_MAX_COUNT)
        FAIL(ERR_FORMAT, "%s: %s is %llu, expected at most %d", c->path, c->what,
             (unsigned long long)n, GGUF_MAX_COUNT);
    *out = (int64_t)n;
    return OK;
}

static Status take_header(GgufFile *f, Cursor *c)
{
    const unsigned char *magic = NULL;
    uint32_t             version = 0;
    snprintf(c->what, sizeof c->what, "the header");
    TRY(take(&magic, c, 4));
    if (memcmp(magic, "GGUF", 4) != 0)
        FAIL(ERR_FORMAT, "%s: not a GGUF file: it begins with %02x %02x %02x %02x", f->path,
             magic[0], magic[1], magic[2], magic[3]);
    TRY(take_u32(&version, c));
    if (version == 0x02000000 || version == 0x03000000)
        FAIL(ERR_UNSUPPORTED, "%s: GGUF for big-endian machines", f->path);
    if (version != 2 && version != 3)
        FAIL(ERR_UNSUPPORTED, "%s: GGUF of version %u, expected 2 or 3", f->path, version);
    TRY(take_count(&f->n_tensors, c, "tensors"));
    return take_count(&f->n_keys, c, "keys");
}

static Status read_alignment(size_t *out, const GgufFile *f)
{
    int64_t n = DEFAULT_ALIGNMENT, parts = 1;
    TRY(gguf_key_int(&n, f, "general.alignment", 1, 1 << 30));
    if (n & (n - 1))
        FAIL(ERR_FORMAT, "%s: key general.alignment is %lld, expected a power of two", f->path,
             (long long)n);
    TRY(gguf_key_int(&parts, f, "split.count", 0, INT64_MAX));
    if (parts > 1)
        FAIL(ERR_UNSUPPORTED, "%s: one of %lld parts of a model: join them first "
             "(llama-gguf-split --merge)", f->path, (long long)parts);
    *out = (size_t)n;
    return OK;
}

static Status parse(GgufFile *f, Arena *a)
{
    Cursor c = {.path = f->path, .begin = f->map.data, .at = f->map.data};
    size_t alignment = 0;
    if (!f->map.size)
        FAIL(ERR_FORMAT, "%s: empty, expected a GGUF file", f->path);
    c.end = c.begin + f->map.size;
    TRY(take_header(f, &c));
    TRY(take_keys(f, a, &c));
    TRY(read_alignment(&alignment, f));
    return take_tensors(f, a, &c, alignment);
}

Status gguf_file_open(GgufFile *f, Arena *a, const char *path)
{
    *f = (GgufFile){.path = arena_text(a, path, strlen(path))};
    if (!f->path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    TRY(filemap_open(&f->map, path));
    Status s = parse(f, a);
    if (s != OK)
        gguf_file_close(f);
    return s;
}

void gguf_file_close(GgufFile *f)
{
    filemap_close(&f->map);
    *f = (GgufFile){0};
}
