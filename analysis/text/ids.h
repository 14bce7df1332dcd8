/* ids.h - the list that encoding fills: token ids and where they begin. */
#ifndef DQ_TEXT_IDS_H
#define DQ_TEXT_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"

typedef struct {
    Arena   *arena;  // grows here; old lists stay until it is closed
    bool     track;  // keep begin
    int32_t *id;     // [n]
    int64_t *begin;  // [n] byte of the input, NULL unless track
    int64_t  n, room;
    int64_t  enough; // tokens that are wanted, 0: all; a few more may come
} Ids;

/* Room for n more. ERR_MEMORY. */
MUST_USE Status ids_reserve(Ids *ids, int64_t n);

static inline bool ids_enough(const Ids *ids)
{
    return ids->enough && ids->n >= ids->enough;
}

/* After ids_reserve. */
static inline void ids_push(Ids *ids, int32_t id, int64_t begin)
{
    ids->id[ids->n] = id;
    if (ids->track)
        ids->begin[ids->n] = begin;
    ids->n++;
}

#endif
