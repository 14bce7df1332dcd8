/* ref_checkpoint.h - writes small checkpoint folders for tests, whole or with
 * one thing wrong. Values are drawn, so that every row is different. */
#ifndef DQ_REF_CHECKPOINT_H
#define DQ_REF_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Path of a file or folder in the test's own folder; static buffers, eight in turn. */
const char *ref_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
void        ref_write(const char *path, const void *data, size_t n);
void        ref_write_text(const char *path, const char *text);
/* Length of the header, header, n_data bytes 1, 2, 3, ... */
void ref_write_safetensors(const char *path, const char *header, size_t n_data);
/* The file's bytes (malloc) and how many. */
unsigned char *ref_read(const char *path, size_t *n);
/* The text with the first `from` replaced; static buffer. */
const char *ref_replace(const char *text, const char *from, const char *to);

enum { REF_MAX_TENSORS = 128 };

typedef struct {
    char    name[96];
    char    dtype[8];   // "F32", "F16", "BF16" or any other word, stored as F32
    int64_t rows, cols; // cols 0: a vector
    char    shape[32];  // where not "", written in place of rows and cols
    float  *data;       // [rows,cols]
} RefTensor;

typedef struct {
    bool      diff;                                     // DiffLlama, else Llama
    int64_t   hidden, inter, vocab, layers, heads, kv_heads, head_dim;
    bool      tied, attention_bias, mlp_bias;
    int       n;
    RefTensor at[REF_MAX_TENSORS];
} RefModel;

/* Draws all tensors; the sizes and flags are set. dtype is that of all. */
void       ref_model_fill(RefModel *m, const char *dtype);
RefTensor *ref_model_find(RefModel *m, const char *name);
/* Drops one tensor, or adds one of its own values. */
void       ref_model_drop(RefModel *m, const char *name);
RefTensor *ref_model_add(RefModel *m, const char *name, int64_t rows, int64_t cols);
/* config.json's text (static) and the folder, made if need be. shards 1: one file. */
const char *ref_model_config(const RefModel *m);
void        ref_model_write(const RefModel *m, const char *folder, int shards);
void        ref_model_free(RefModel *m);

#endif
