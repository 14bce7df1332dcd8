/* gguf_file.h - one GGUF file, mapped and checked, not read (formats.md 4.1).
 *   "GGUF" | u32 version | i64 tensors | i64 keys | keys | tensor table | padding | data
 * A key is a name with a value or a list of values; a tensor's shape lies innermost
 * first. All numbers are little-endian and lie at any address. */
#ifndef DQ_GGUF_FILE_H
#define DQ_GGUF_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/arena.h"
#include "kernels/blocks.h"
#include "kernels/filemap.h"
#include "kernels/tensor.h"

/* The format's own numbers. */
typedef enum {
    GGUF_VALUE_U8, GGUF_VALUE_I8, GGUF_VALUE_U16, GGUF_VALUE_I16, GGUF_VALUE_U32,
    GGUF_VALUE_I32, GGUF_VALUE_F32, GGUF_VALUE_BOOL, GGUF_VALUE_TEXT, GGUF_VALUE_LIST,
    GGUF_VALUE_U64, GGUF_VALUE_I64, GGUF_VALUE_F64, N_GGUF_VALUES
} GgufValue;

enum { GGUF_MAX_DIMS = 4, GGUF_MAX_NAME = 63, GGUF_MAX_COUNT = 1 << 20 };

typedef struct {
    const char          *name;
    GgufValue            kind;   // of the value, or of the items of a list
    bool                 list;
    int64_t              n;      // items, 1 where it is no list
    const unsigned char *data;   // the first item; texts are u64 length and bytes each
} GgufKey;

typedef struct {
    const char          *name;
    int                  n_dims;
    int64_t              ne[GGUF_MAX_DIMS];  // innermost first
    bool                 is_block;
    BlockType            block;              // is_block
    Dtype                dtype;              // else
    const unsigned char *data;
    size_t               bytes;
} GgufTensor;

typedef struct {
    const char *path;
    FileMap     map;
    int64_t     n_keys, n_tensors;
    GgufKey    *keys;     // [n_keys] by name
    GgufTensor *tensors;  // [n_tensors] in the order of the file
} GgufFile;

/* The GGUF file that path means: path itself where it is a regular file, or the only
 * .gguf in a folder without config.json. NULL where it means none. ERR_FORMAT for a
 * file that is not GGUF and for a folder with several. */
MUST_USE Status gguf_file_find(const char **out, Arena *a, const char *path);

/* Names live in the arena, values and tensors in the mapping: until gguf_file_close.
 * ERR_IO; ERR_FORMAT names the file and the key or tensor for all that 4.1 demands:
 * magic, counts, lengths, kinds, names once, dims, blocks, offsets one after another
 * without holes, nothing past the end; ERR_UNSUPPORTED for a version other than 2 and
 * 3, for big-endian files, parts of a split model, types of tensors that are not ours. */
MUST_USE Status gguf_file_open(GgufFile *f, Arena *a, const char *path);
/* Zeroed or closed twice is fine. */
void gguf_file_close(GgufFile *f);

/* --- values by name (gguf_keys.c); messages name the file and the key --- */

/* NULL where there is none of that name. */
const GgufKey *gguf_key(const GgufFile *f, const char *name);
/* Any whole number. Absent: *out stays as it is. ERR_FORMAT for another kind (a list
 * too), ERR_RANGE outside min..max. */
MUST_USE Status gguf_key_int(int64_t *out, const GgufFile *f, const char *name, int64_t min,
                             int64_t max);
MUST_USE Status gguf_key_real(double *out, const GgufFile *f, const char *name);
MUST_USE Status gguf_key_bool(bool *out, const GgufFile *f, const char *name);
/* Copied; UTF-8 without zero bytes, else ERR_FORMAT. */
MUST_USE Status gguf_key_text(const char **out, Arena *a, const GgufFile *f, const char *name);
/* Lists, copied. Absent: NULL and 0. Numbers of any kind fit double exactly but for
 * 64 bits, whole ones only where the caller asks for ints. */
MUST_USE Status gguf_key_texts(const char ***out, int64_t *n, Arena *a, const GgufFile *f,
                               const char *name);
MUST_USE Status gguf_key_ints(int32_t **out, int64_t *n, Arena *a, const GgufFile *f,
                              const char *name);
MUST_USE Status gguf_key_reals(float **out, int64_t *n, Arena *a, const GgufFile *f,
                               const char *name);
/* NULL where there is none. */
const GgufTensor *gguf_tensor(const GgufFile *f, const char *name);

#endif
