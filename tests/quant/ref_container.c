/* ref_container.c - a strict reading of GGUF version 3. */
#include "tests/quant/ref_container.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, LIST = 9 };

typedef struct {
    const uint8_t *at, *end;
    bool           bad;
} Cursor;

static const uint8_t *take(Cursor *c, size_t n)
{
    const uint8_t *p = c->at;
    if (c->bad || n > (size_t)(c->end - c->at)) {
        c->bad = true;
        return NULL;
    }
    c->at += n;
    return p;
}

static uint64_t number(Cursor *c, size_t n)
{
    uint64_t       x = 0;
    const uint8_t *p = take(c, n);
    for (size_t i = 0; p && i < n; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

static void text64(char *out, Cursor *c)
{
    uint64_t       n = number(c, 8);
    const uint8_t *p = n > 0 && n < 64 ? take(c, n) : NULL;
    c->bad |= p == NULL;
    memset(out, 0, 64);
    if (p)
        memcpy(out, p, n);
}

static void skip_value(Cursor *c, int type)
{
    if (type == U32 || type == I32 || type == F32)
        take(c, 4);
    else if (type == BOOL)
        c->bad |= number(c, 1) > 1;
    else if (type == TEXT)
        take(c, number(c, 8));
    else
        c->bad = true;
}

static void read_key(RefGgufKey *k, Cursor *c)
{
    text64(k->name, c);
    k->type = (int)number(c, 4);
    k->value = c->at;
    if (k->type != LIST) {
        skip_value(c, k->type);
        return;
    }
    int      of = (int)number(c, 4);
    uint64_t n = number(c, 8);
    for (uint64_t i = 0; i < n && !c->bad; i++)
        skip_value(c, of);
}

/* Items and bytes of a block of ggml's types. */
static size_t type_bytes(int type, int64_t n)
{
    static const struct {
        int type, items, bytes;
    } T[] = {{0, 1, 4},   {1, 1, 2},   {30, 1, 2},     {2, 32, 18},
             {3, 32, 20}, {6, 32, 22}, {7, 32, 24},    {8, 32, 34},
             {12, 256, 144}, {13, 256, 176}, {14, 256, 210}};
    for (size_t i = 0; i < sizeof T / sizeof *T; i++)
        if (T[i].type == type && n % T[i].items == 0)
            return (size_t)(n / T[i].items * T[i].bytes);
    return 0;
}

/* Offsets are the running sum of padded sizes. */
static const char *read_tensor(RefGgufTensor *t, Cursor *c, uint64_t *offset)
{
    int64_t rows = 1;
    text64(t->name, c);
    t->n_dims = (int)number(c, 4);
    if (t->n_dims < 1 || t->n_dims > 4)
        return "number of dims";
    for (int d = 0; d < t->n_dims; d++) {
        t->ne[d] = (int64_t)number(c, 8);
        rows *= d ? t->ne[d] : 1;
    }
    t->type = (int)number(c, 4);
    t->bytes = type_bytes(t->type, t->ne[0]) * (size_t)rows;
    if (!t->bytes)
        return "type, or rows of no whole blocks";
    if (number(c, 8) != *offset)
        return "offset";
    *offset += (t->bytes + 31) / 32 * 32;
    return NULL;
}

static bool repeats(const RefGguf *g)
{
    for (int i = 0; i < g->n_keys; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(g->keys[i].name, g->keys[j].name) == 0)
                return true;
    for (int i = 0; i < g->n_tensors; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(g->tensors[i].name, g->tensors[j].name) == 0)
                return true;
    return false;
}

static bool all_zero(const uint8_t *p, size_t n)
{
    while (n > 0 && p[n - 1] == 0)
        n--;
    return n == 0;
}

static const char *parse(RefGguf *g)
{
    Cursor   c = {g->bytes, g->bytes + g->n, false};
    uint64_t offset = 0;
    if (number(&c, 4) != 0x46554747 || number(&c, 4) != 3)
        return "magic or version";
    uint64_t n_tensors = number(&c, 8), n_keys = number(&c, 8);
    if (n_keys > REF_GGUF_KEYS || n_tensors > REF_GGUF_TENSORS)
        return "too many keys or tensors for this reader";
    while (g->n_keys < (int)n_keys)
        read_key(&g->keys[g->n_keys++], &c);
    while (g->n_tensors < (int)n_tensors && !c.bad) {
        const char *wrong = read_tensor(&g->tensors[g->n_tensors++], &c, &offset);
        if (wrong)
            return wrong;
    }
    size_t head = (size_t)(c.at - g->bytes), start = (head + 31) / 32 * 32;
    if (c.bad || repeats(g))
        return c.bad ? "a value" : "a name twice";
    if (g->n != start + offset || !all_zero(g->bytes + head, start - head))
        return "length or padding";
    for (int i = 0; i < g->n_tensors; i++) {
        RefGgufTensor *t = &g->tensors[i];
        t->data = g->bytes + start;
        start += (t->bytes + 31) / 32 * 32;
        if (!all_zero(t->data + t->bytes, (t->bytes + 31) / 32 * 32 - t->bytes))
            return "padding of data";
    }
    return NULL;
}

const char *ref_gguf_open(RefGguf *g, const char *path)
{
    memset(g, 0, sizeof *g);
    FILE *f = fopen(path, "rb");
    if (!f)
        return "no file";
    fseek(f, 0, SEEK_END);
    g->n = (size_t)ftell(f);
    rewind(f);
    g->bytes = malloc(g->n + 1);
    bool whole = fread(g->bytes, 1, g->n, f) == g->n;
    fclose(f);
    return whole ? parse(g) : "cannot be read";
}

void ref_gguf_close(RefGguf *g)
{
    free(g->bytes);
    g->bytes = NULL;
}

const RefGgufTensor *ref_gguf_tensor(const RefGguf *g, const char *name)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0)
            return &g->tensors[i];
    return NULL;
}

const RefGgufKey *ref_gguf_key(const RefGguf *g, const char *name)
{
    for (int i = 0; i < g->n_keys; i++)
        if (strcmp(g->keys[i].name, name) == 0)
            return &g->keys[i];
    return NULL;
}

static Cursor value_of(const RefGguf *g, const char *key, int type)
{
    const RefGgufKey *k = ref_gguf_key(g, key);
    bool              ok = k && k->type == type;
    return (Cursor){ok ? k->value : NULL, g->bytes + g->n, !ok};
}

int64_t ref_gguf_u32(const RefGguf *g, const char *key)
{
    Cursor c = value_of(g, key, U32);
    return c.bad ? -1 : (int64_t)number(&c, 4);
}

int ref_gguf_bool(const RefGguf *g, const char *key)
{
    Cursor c = value_of(g, key, BOOL);
    return c.bad ? -1 : (int)number(&c, 1);
}

static float f32_of(Cursor *c)
{
    uint32_t u = (uint32_t)number(c, 4);
    float    x;
    memcpy(&x, &u, sizeof x);
    return x;
}

double ref_gguf_f32(const RefGguf *g, const char *key)
{
    Cursor c = value_of(g, key, F32);
    return c.bad ? NAN : f32_of(&c);
}

static const char *text_of(Cursor *c)
{
    static char    texts[4][512];
    static int     turn;
    char          *text = texts[turn++ % 4];
    uint64_t       n = number(c, 8);
    const uint8_t *p = take(c, n);
    if (p)
        snprintf(text, sizeof texts[0], "%.*s", (int)n, (const char *)p);
    return p ? text : NULL;
}

const char *ref_gguf_text(const RefGguf *g, const char *key)
{
    Cursor c = value_of(g, key, TEXT);
    return c.bad ? NULL : text_of(&c);
}

int64_t ref_gguf_count(const RefGguf *g, const char *key, int type)
{
    Cursor c = value_of(g, key, LIST);
    int    of = (int)number(&c, 4);
    int64_t n = (int64_t)number(&c, 8);
    return c.bad || of != type ? -1 : n;
}

const char *ref_gguf_item(const RefGguf *g, const char *key, int64_t i)
{
    Cursor c = value_of(g, key, LIST);
    take(&c, 12);
    for (; i > 0 && !c.bad; i--)
        skip_value(&c, TEXT);
    return c.bad ? NULL : text_of(&c);
}

double ref_gguf_number(const RefGguf *g, const char *key, int64_t i)
{
    Cursor c = value_of(g, key, LIST);
    int    of = (int)number(&c, 4);
    take(&c, 8 + 4 * (size_t)i);
    return of == F32 ? f32_of(&c) : of == I32 ? (double)(int32_t)number(&c, 4) : NAN;
}
