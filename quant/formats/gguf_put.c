/* gguf_put.c - keys and values of a GGUF file as bytes, little-endian as the machine. */
#include "quant/formats/gguf_put.h"

#include <string.h>

void gguf_put_init(GgufPut *p, Arena *a)
{
    *p = (GgufPut){0};
    textbuf_init(&p->out, a);
}

void gguf_put_bytes(GgufPut *p, const void *data, size_t n)
{
    textbuf_bytes(&p->out, data, n);
}

void gguf_put_item(GgufPut *p, const char *text, size_t n)
{
    uint64_t length = n;
    gguf_put_bytes(p, &length, sizeof length);
    gguf_put_bytes(p, text, n);
}

static void put_key(GgufPut *p, const char *key, GgufValue type)
{
    int32_t number = type;
    p->n_keys++;
    gguf_put_item(p, key, strlen(key));
    gguf_put_bytes(p, &number, sizeof number);
}

void gguf_put_u32(GgufPut *p, const char *key, int64_t value)
{
    uint32_t u = (uint32_t)value;
    CHECK(value >= 0 && value <= UINT32_MAX);
    put_key(p, key, GGUF_VALUE_U32);
    gguf_put_bytes(p, &u, sizeof u);
}

void gguf_put_f32(GgufPut *p, const char *key, double value)
{
    float x = (float)value;
    put_key(p, key, GGUF_VALUE_F32);
    gguf_put_bytes(p, &x, sizeof x);
}

void gguf_put_bool(GgufPut *p, const char *key, bool value)
{
    uint8_t byte = value;
    put_key(p, key, GGUF_VALUE_BOOL);
    gguf_put_bytes(p, &byte, sizeof byte);
}

void gguf_put_text(GgufPut *p, const char *key, const char *value)
{
    put_key(p, key, GGUF_VALUE_TEXT);
    gguf_put_item(p, value, strlen(value));
}

static void put_list(GgufPut *p, const char *key, GgufValue of, int64_t n)
{
    int32_t  number = of;
    uint64_t count = (uint64_t)n;
    put_key(p, key, GGUF_VALUE_LIST);
    gguf_put_bytes(p, &number, sizeof number);
    gguf_put_bytes(p, &count, sizeof count);
}

void gguf_put_i32s(GgufPut *p, const char *key, const int32_t *values, int64_t n)
{
    put_list(p, key, GGUF_VALUE_I32, n);
    gguf_put_bytes(p, values, (size_t)n * sizeof *values);
}

void gguf_put_f32s(GgufPut *p, const char *key, const float *values, int64_t n)
{
    put_list(p, key, GGUF_VALUE_F32, n);
    gguf_put_bytes(p, values, (size_t)n * sizeof *values);
}

void gguf_put_texts(GgufPut *p, const char *key, int64_t n)
{
    put_list(p, key, GGUF_VALUE_TEXT, n);
}
