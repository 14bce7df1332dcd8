/* vocab.c - see vocab.h. */
#include "analysis/text/vocab.h"

#include <stdbool.h>
#include <string.h>

uint64_t vocab_hash(const char *text, int64_t n)
{
    const uint64_t prime = 0x9fb21c651e98df25u;
    uint64_t       h = 0xcbf29ce484222325u ^ (uint64_t)n;
    uint64_t       word;
    for (; n >= 8; text += 8, n -= 8) {
        memcpy(&word, text, 8);
        h = (h ^ word) * prime;
        h ^= h >> 29;
    }
    word = 0;
    for (int64_t i = 0; i < n; i++)
        word |= (uint64_t)(unsigned char)text[i] << 8 * i;
    h = (h ^ word) * prime;
    return h ^ h >> 32;
}

Status vocab_init(Vocab *v, Arena *a, int32_t size, int32_t n)
{
    *v = (Vocab){.size = size, .n_slots = 16};
    while (v->n_slots < 2 * (uint32_t)n)
        v->n_slots *= 2;
    ARENA_NEW(v->text, a, size);
    ARENA_NEW(v->length, a, size);
    ARENA_NEW(v->slot, a, v->n_slots);
    memset(v->slot, 0xff, v->n_slots * sizeof *v->slot);
    return OK;
}

/* The slot of that spelling, or the empty one where it belongs. */
static uint32_t find_slot(const Vocab *v, const char *text, int64_t n)
{
    uint32_t i = (uint32_t)vocab_hash(text, n) & (v->n_slots - 1);
    for (;; i = (i + 1) & (v->n_slots - 1)) {
        int32_t id = v->slot[i];
        if (id < 0 || (v->length[id] == n && memcmp(v->text[id], text, (size_t)n) == 0))
            return i;
    }
}

Status vocab_add(Vocab *v, const char *name, const char *text, int32_t id)
{
    size_t n = strlen(text);
    if (v->text[id])
        FAIL(ERR_FORMAT, "%s: id %d is both \"%.100s\" and \"%.100s\"", name, (int)id,
             v->text[id], text);
    if (n > INT32_MAX)
        FAIL(ERR_RANGE, "%s: token %d has %zu bytes", name, (int)id, n);
    uint32_t i = find_slot(v, text, (int64_t)n);
    if (v->slot[i] >= 0)
        FAIL(ERR_FORMAT, "%s: \"%.100s\" is both token %d and %d", name, text, (int)v->slot[i],
             (int)id);
    v->slot[i] = id;
    v->text[id] = text;
    v->length[id] = (int32_t)n;
    v->n++;
    return OK;
}

int32_t vocab_find(const Vocab *v, const char *text, int64_t n)
{
    return v->n_slots ? v->slot[find_slot(v, text, n)] : -1;
}
