/* gguf_put.h - the head of a GGUF file as bytes: keys with their values (formats.md 4.1,
 * 4.2). Failure to allocate is remembered by the TextBuf, and told by textbuf_status. */
#ifndef DQ_GGUF_PUT_H
#define DQ_GGUF_PUT_H

#include "analysis/textbuf.h"

/* The container's numbers for types of values. */
typedef enum {
    GGUF_VALUE_U32 = 4, GGUF_VALUE_I32 = 5, GGUF_VALUE_F32 = 6, GGUF_VALUE_BOOL = 7,
    GGUF_VALUE_TEXT = 8, GGUF_VALUE_LIST = 9
} GgufValue;

typedef struct {
    TextBuf out;
    int64_t n_keys;
} GgufPut;

void gguf_put_init(GgufPut *p, Arena *a);
void gguf_put_u32(GgufPut *p, const char *key, int64_t value);
void gguf_put_f32(GgufPut *p, const char *key, double value);
void gguf_put_bool(GgufPut *p, const char *key, bool value);
void gguf_put_text(GgufPut *p, const char *key, const char *value);
/* Whole lists; of texts, the n items follow by gguf_put_item. */
void gguf_put_i32s(GgufPut *p, const char *key, const int32_t *values, int64_t n);
void gguf_put_f32s(GgufPut *p, const char *key, const float *values, int64_t n);
void gguf_put_texts(GgufPut *p, const char *key, int64_t n);
void gguf_put_item(GgufPut *p, const char *text, size_t n);

/* Without a key: what stands between the keys. */
void gguf_put_bytes(GgufPut *p, const void *data, size_t n);

#endif
