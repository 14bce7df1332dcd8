/* ref_container.h - reads a GGUF file strictly by formats.md 4.1, on its own: what the writer's
 * tests hold it against. */
#ifndef DQ_REF_CONTAINER_H
#define DQ_REF_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REF_GGUF_KEYS = 64, REF_GGUF_TENSORS = 512 };

typedef struct {
    char           name[64];
    int            n_dims, type;
    int64_t        ne[4];
    const uint8_t *data;
    size_t         bytes;
} RefGgufTensor;

typedef struct {
    char           name[64];
    int            type;
    const uint8_t *value;
} RefGgufKey;

typedef struct {
    uint8_t      *bytes;
    size_t        n;
    int           n_keys, n_tensors;
    RefGgufKey    keys[REF_GGUF_KEYS];
    RefGgufTensor tensors[REF_GGUF_TENSORS];
} RefGguf;

/* NULL when the file keeps every rule, else what it breaks. Close it either way. */
const char *ref_gguf_open(RefGguf *g, const char *path);
void        ref_gguf_close(RefGguf *g);

/* NULL: none of that name. */
const RefGgufTensor *ref_gguf_tensor(const RefGguf *g, const char *name);
const RefGgufKey    *ref_gguf_key(const RefGguf *g, const char *name);
/* Its value where it is of that type, else -1, NaN, NULL (text: static buffer). */
int64_t     ref_gguf_u32(const RefGguf *g, const char *key);
int         ref_gguf_bool(const RefGguf *g, const char *key);
double      ref_gguf_f32(const RefGguf *g, const char *key);
const char *ref_gguf_text(const RefGguf *g, const char *key);
/* Items of a list; -1 where the key is no list of that type. */
int64_t     ref_gguf_count(const RefGguf *g, const char *key, int type);
const char *ref_gguf_item(const RefGguf *g, const char *key, int64_t i);  // of texts
double      ref_gguf_number(const RefGguf *g, const char *key, int64_t i);  // i32, f32

#endif
