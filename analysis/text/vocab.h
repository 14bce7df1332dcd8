/* vocab.h - the tokens of a tokenizer by spelling and by id.
 * Lives in the arena it was made in. */
#ifndef DQ_TEXT_VOCAB_H
#define DQ_TEXT_VOCAB_H

#include <stdint.h>

#include "kernels/arena.h"

enum { VOCAB_MAX_ID = 1 << 24 };  // ids are below: they size tables

typedef struct {
    int32_t      size;    // largest id + 1
    int32_t      n;       // spellings
    const char **text;    // [size] spelling with a closing 0, NULL for unused ids
    int32_t     *length;  // [size] bytes
    int32_t     *slot;    // [n_slots] id or -1, open addressing
    uint32_t     n_slots; // a power of two, more than n
} Vocab;

/* Room for ids below size and n spellings. ERR_MEMORY. */
MUST_USE Status vocab_init(Vocab *v, Arena *a, int32_t size, int32_t n);
/* text is kept, not copied. ERR_FORMAT (it begins with name) where the id or
 * the spelling is taken. 0 <= id < size. */
MUST_USE Status vocab_add(Vocab *v, const char *name, const char *text, int32_t id);
/* -1 where there is none. */
int32_t vocab_find(const Vocab *v, const char *text, int64_t n);

/* FNV-1a over words of eight bytes, mixed; for tables in memory only. */
uint64_t vocab_hash(const char *text, int64_t n);

#endif
