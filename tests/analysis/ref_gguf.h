/* ref_gguf.h - writes small GGUF files for tests, whole or with one thing wrong.
 * Calls in the order of the file: begin, keys, tensors, data, save. */
#ifndef DQ_REF_GGUF_H
#define DQ_REF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    unsigned char *bytes;  // malloc
    size_t         n, room;
    size_t         data;   // next offset of a tensor, multiples of 32
} RefGguf;

/* Header; the counts are not checked against what follows. */
void ref_gguf_begin(RefGguf *g, uint32_t version, uint64_t n_tensors, uint64_t n_keys);
/* Single things, little-endian, where a call below does not say it. */
void ref_gguf_bytes(RefGguf *g, const void *bytes, size_t n);
void ref_gguf_u32(RefGguf *g, uint32_t x);
void ref_gguf_u64(RefGguf *g, uint64_t x);
void ref_gguf_name(RefGguf *g, const char *text);
/* Keys; kinds are the format's numbers. */
void ref_gguf_key_u32(RefGguf *g, const char *name, uint32_t x);
void ref_gguf_key_f32(RefGguf *g, const char *name, float x);
void ref_gguf_key_bool(RefGguf *g, const char *name, bool x);
void ref_gguf_key_text(RefGguf *g, const char *name, const char *text);
/* The head of a list: its items follow. */
void ref_gguf_key_list(RefGguf *g, const char *name, uint32_t kind, uint64_t n);
/* A row of the table; the offset is the next. bytes: what it takes in the data. */
void ref_gguf_tensor(RefGguf *g, const char *name, uint32_t type, int n_dims,
                     const uint64_t *ne, size_t bytes);
/* Padding to 32, then bytes 1, 2, 3, ... for all tensors, the last one padded. */
void ref_gguf_data(RefGguf *g);
/* Writes the file and frees the bytes. */
void ref_gguf_save(RefGguf *g, const char *path);

/* A tokenizer.json as the keys of a GGUF file at path, without tensors. */
typedef struct {
    const char *model, *pre;  // "gpt2" and its pre, or "llama" and NULL
    bool        merges;       // else scores: -(id / 3)
    bool        bos, eos;     // put around texts: the first two special tokens, or <s>, </s>
} RefGgufTokenizer;

void ref_gguf_tokenizer(const char *path, const char *json, const RefGgufTokenizer *t);

#endif
