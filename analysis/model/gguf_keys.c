/* gguf_keys.c - values of a GGUF file by name. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/json.h"
#include "analysis/model/gguf_file.h"
#include "kernels/size.h"

static const char *const KINDS[N_GGUF_VALUES] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32",
                                                 "bool", "text", "list", "u64", "i64", "f64"};

static int by_name(const void *name, const void *key)
{
    return strcmp(name, ((const GgufKey *)key)->name);
}

const GgufKey *gguf_key(const GgufFile *f, const char *name)
{
    return f->n_keys ? bsearch(name, f->keys, (size_t)f->n_keys, sizeof *f->keys, by_name)
                     : NULL;
}

const GgufTensor *gguf_tensor(const GgufFile *f, const char *name)
{
    for (int64_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

static Status wrong_kind(const GgufFile *f, const GgufKey *k, const char *expected)
{
    FAIL(ERR_FORMAT, "%s: key %s is %s%s, expected %s", f->path, k->name,
         k->list ? "a list of " : "", KINDS[k->kind], expected);
}

/* --- one item --- */

#define LOAD(type)                             \
    ({                                         \
        type x_;                               \
        memcpy(&x_, p, sizeof x_);             \
        x_;                                    \
    })

/* Item at p, its own size each; false where it is no whole number or one past int64. */
static bool whole(int64_t *out, GgufValue kind, const unsigned char *p)
{
    uint64_t u;
    switch (kind) {
    case GGUF_VALUE_U8:
        *out = *p;
        return true;
    case GGUF_VALUE_I8:
        *out = LOAD(int8_t);
        return true;
    case GGUF_VALUE_U16:
        *out = LOAD(uint16_t);
        return true;
    case GGUF_VALUE_I16:
        *out = LOAD(int16_t);
        return true;
    case GGUF_VALUE_U32:
        *out = LOAD(uint32_t);
        return true;
    case GGUF_VALUE_I32:
        *out = LOAD(int32_t);
        return true;
    case GGUF_VALUE_I64:
        *out = LOAD(int64_t);
        return true;
    case GGUF_VALUE_U64:
        u = LOAD(uint64_t);
        *out = (int64_t)u;
        return u <= INT64_MAX;
    default:
        return false;
    }
}

static size_t item_size(GgufValue kind)
{
    switch (kind) {
    case GGUF_VALUE_U8:
    case GGUF_VALUE_I8:
        return 1;
    case GGUF_VALUE_U16:
    case GGUF_VALUE_I16:
        return 2;
    case GGUF_VALUE_U32:
    case GGUF_VALUE_I32:
    case GGUF_VALUE_F32:
        return 4;
    default:
        return 8;
    }
}

static bool real(double *out, GgufValue kind, const unsigned char *p)
{
    int64_t i;
    if (kind == GGUF_VALUE_F32)
        *out = LOAD(float);
    else if (kind == GGUF_VALUE_F64)
        *out = LOAD(double);
    else if (whole(&i, kind, p))
        *out = (double)i;
    else
        return false;
    return true;
}

/* --- single values --- */

Status gguf_key_int(int64_t *out, const GgufFile *f, const char *name, int64_t min, int64_t max)
{
    const GgufKey *k = gguf_key(f, name);
    int64_t        x;
    if (!k)
        return OK;
    if (k->list || !whole(&x, k->kind, k->data))
        return wrong_kind(f, k, "a whole number");
    if (x < min || x > max)
        FAIL(ERR_RANGE, "%s: key %s is %lld, expected %lld to %lld", f->path, name,
             (long long)x, (long long)min, (long long)max);
    *out = x;
    return OK;
}

Status gguf_key_real(double *out, const GgufFile *f, const char *name)
{
    const GgufKey *k = gguf_key(f, name);
    if (k && (k->list || !real(out, k->kind, k->data)))
        return wrong_kind(f, k, "a number");
    if (k && !isfinite(*out))
        FAIL(ERR_RANGE, "%s: key %s is %g, expected a finite number", f->path, name, *out);
    return OK;
}

Status gguf_key_bool(bool *out, const GgufFile *f, const char *name)
{
    const GgufKey *k = gguf_key(f, name);
    if (k && (k->list || k->kind != GGUF_VALUE_BOOL))
        return wrong_kind(f, k, "bool");
    if (k)
        *out = *k->data;
    return OK;
}

/* --- texts --- */

/* Text i of a key at p, its length to *n. */
static Status check_text(const unsigned char **p, uint64_t *n, const GgufFile *f,
                         const GgufKey *k, int64_t i)
{
    memcpy(n, *p, sizeof *n);
    *p += sizeof *n;
    if ((*n && memchr(*p, 0, *n)) || json_utf8_prefix(*p, *n) < *n)
        FAIL(ERR_FORMAT, "%s: key %s: text %lld is not UTF-8 without zero bytes", f->path,
             k->name, (long long)i);
    return OK;
}

Status gguf_key_text(const char **out, Arena *a, const GgufFile *f, const char *name)
{
    const GgufKey *k = gguf_key(f, name);
    uint64_t       n = 0;
    if (!k)
        return OK;
    if (k->list || k->kind != GGUF_VALUE_TEXT)
        return wrong_kind(f, k, "a text");
    const unsigned char *p = k->data;
    TRY(check_text(&p, &n, f, k, 0));
    *out = arena_text(a, (const char *)p, n);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: %llu bytes of %s", (unsigned long long)n, name);
    return OK;
}

/* All texts of a key with their closing zeros. */
static size_t texts_bytes(const GgufKey *k)
{
    const unsigned char *p = k->data;
    size_t               bytes = 0;
    for (int64_t i = 0; i < k->n; i++) {
        uint64_t n;
        memcpy(&n, p, sizeof n);
        p += sizeof n + n;
        bytes += n + 1;
    }
    return bytes;
}

Status gguf_key_texts(const char ***out, int64_t *n, Arena *a, const GgufFile *f,
                      const char *name)
{
    const GgufKey *k = gguf_key(f, name);
    *out = NULL;
    *n = 0;
    if (!k)
        return OK;
    if (!k->list || k->kind != GGUF_VALUE_TEXT)
        return wrong_kind(f, k, "a list of texts");
    size_t bytes = texts_bytes(k);
    char  *copy = arena_raw(a, (int64_t)bytes, 1);
    if (!copy)
        FAIL(ERR_MEMORY, "out of memory: %zu bytes of %s", bytes, name);
    ARENA_NEW(*out, a, k->n);
    const unsigned char *p = k->data;
    for (int64_t i = 0; i < k->n; i++) {
        uint64_t length = 0;
        TRY(check_text(&p, &length, f, k, i));
        (*out)[i] = copy;
        memcpy(copy, p, length);
        copy[length] = 0;
        copy += length + 1;
        p += length;
    }
    *n = k->n;
    return OK;
}

/* --- lists of numbers --- */

Status gguf_key_ints(int32_t **out, int64_t *n, Arena *a, const GgufFile *f, const char *name)
{
    const GgufKey *k = gguf_key(f, name);
    *out = NULL;
    *n = 0;
    if (!k)
        return OK;
    if (!k->list)
        return wrong_kind(f, k, "a list of whole numbers");
    ARENA_NEW(*out, a, k->n);
    for (int64_t i = 0; i < k->n; i++) {
        int64_t x;
        if (!whole(&x, k->kind, k->data + (size_t)i * item_size(k->kind)))
            return wrong_kind(f, k, "a list of whole numbers");
        if (x < INT32_MIN || x > INT32_MAX)
            FAIL(ERR_RANGE, "%s: key %s: number %lld is %lld, expected 32 bits", f->path, name,
                 (long long)i, (long long)x);
        (*out)[i] = (int32_t)x;
    }
    *n = k->n;
    return OK;
}

Status gguf_key_reals(float **out, int64_t *n, Arena *a, const GgufFile *f, const char *name)
{
    const GgufKey *k = gguf_key(f, name);
    *out = NULL;
    *n = 0;
    if (!k)
        return OK;
    if (!k->list)
        return wrong_kind(f, k, "a list of numbers");
    ARENA_NEW(*out, a, k->n);
    for (int64_t i = 0; i < k->n; i++) {
        double x;
        if (!real(&x, k->kind, k->data + (size_t)i * item_size(k->kind)))
            return wrong_kind(f, k, "a list of numbers");
        if (isnan(x))
            FAIL(ERR_RANGE, "%s: key %s: number %lld is NaN", f->path, name, (long long)i);
        (*out)[i] = (float)x;
    }
    *n = k->n;
    return OK;
}
